import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Entries that a merge is about to write to a target in which a batch may be left in part.
///
/// A marker cannot have the time of what was written last there. So it names, before a batch, the entries in it, and what of them is in the
/// target with the same value was written by the merge.
struct AnnouncedEntries: Sendable {
  /// What is written in a line in front of the key, the size and the checksums.
  private static let word = "entry"

  /// The sizes and checksums of the values.
  private var values: [CacheKey: Set<String>] = [:]

  /// None.
  init() {}

  /// Those that a marker names.
  init(_ marker: Data) {
    for line in String(decoding: marker, as: UTF8.self).split(separator: "\n") {
      let words = line.split(separator: " ")
      // What cannot be read says nothing, as with the times of the marker.
      guard words.count == 5, words[0] == Self.word, let bytes = Data(base64Encoded: String(words[1])),
        let key = String(validating: bytes, as: UTF8.self)
      else { continue }
      values[CacheKey(verbatim: key), default: []].insert(words[2...].joined(separator: " "))
    }
  }

  var keys: [CacheKey] { Array(values.keys) }

  func contain(_ entry: StorageEntry) -> Bool {
    values[entry.key]?.contains(Self.summary(of: entry.data)) ?? false
  }

  mutating func insert(_ entry: StorageEntry) {
    values[entry.key, default: []].insert(Self.summary(of: entry.data))
  }

  mutating func remove(_ key: CacheKey) { values[key] = nil }

  /// What a marker has besides its text and its times.
  var lines: String {
    values.flatMap { key, summaries in
      let name = Data(key.value.utf8).base64EncodedString()
      return summaries.map { "\n\(Self.word) \(name) \($0)" }
    }.joined()
  }

  /// The same in every process, where two values have the same one in one of 2^64 cases.
  private static func summary(of value: Data) -> String {
    value.withUnsafeBytes { "\($0.count) \(CRC32C.checksum($0)) \(CRC32.checksum($0, after: 0))" }
  }
}
