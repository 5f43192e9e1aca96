import FaultyEngineWorker
import Foundation
import StockroomCore

// What engines make of a key: a name of a file, or the text that the key was made from.

/// The key with an escape for each byte that is no lowercase letter or digit.
func escapedName(_ key: String) -> String {
  key.utf8.map { byte in
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"):
      String(UnicodeScalar(byte))
    default: "%" + String(Int(byte) + 256, radix: 16).uppercased().suffix(2)
    }
  }.joined()
}

/// Uses the text that a key was made from instead of its value, in one kind of call.
struct UsesTexts: FaultyEngine {
  enum Method { case batches, questions, scans }
  let base: ReferenceEngine
  private let method: Method
  init(base: ReferenceEngine, in method: Method) { (self.base, self.method) = (base, method) }

  private func text(_ key: CacheKey, _ method: Method) -> CacheKey {
    method == self.method && (1...511).contains(key.rawValue.utf8.count)
      ? CacheKey(verbatim: key.rawValue) : key
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys.map { (text($0.key, .batches), $0.data) })
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await base.keysExist(keys.map { text($0, .questions) })
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var range = range
    range.after = range.after.map { text($0, .scans) }
    return try await base.scan(range, limit: limit)
  }
}

extension Sequence {
  /// The elements without those whose key equals the key of a later one as a string, and not in its bytes.
  func mergingEqualStrings(_ find: (Element) -> CacheKey?) -> [Element] {
    var last: [String: CacheKey] = [:]
    var kept: [Element] = []
    for element in reversed() {
      if let key = find(element) {
        if let other = last[key.value], other != key { continue }
        last[key.value] = key
      }
      kept.append(element)
    }
    return kept.reversed()
  }
}

extension StorageOperation {
  /// The key that is written or removed; nil if all of them are.
  var keyOfChange: CacheKey? {
    switch self {
    case .write(_, let key), .remove(let key): key
    case .removeAll: nil
    }
  }
}

/// Leaves out of its list what begins with "._", as macOS names the files in which it keeps attributes.
struct ListsNoNamesOfTheSystem: FaultyEngine {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] { try await base.allKeys().filter { !$0.value.hasPrefix("._") } }
}
