import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Entries that a merge is about to write to a target without `atomicBatches`, where an interruption may leave a part
/// of a batch.
///
/// In such a target, the marker is not written atomically with the batch, so its time does not show when the batch was
/// written. Therefore the marker names the entries of a batch before they are written. An entry in the target that has
/// one of these keys, and the same value, counts as written by the merge.
struct AnnouncedEntries: Sendable {
  /// The first word of a line, before the key, the size and the checksums.
  private static let word = "entry"

  /// The sizes and checksums of the values.
  private var values: [CacheKey: Set<String>] = [:]

  /// Creates an empty set.
  init() {}

  /// The entries that a marker names.
  init(_ marker: Data) {
    for line in String(decoding: marker, as: UTF8.self).split(separator: "\n") {
      let words = line.split(separator: " ")
      // A line that cannot be parsed is ignored, as in ``InterruptedMerges``.
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

  /// The contents of a marker in addition to its text and its times.
  var lines: String {
    values.flatMap { key, summaries in
      let name = Data(key.value.utf8).base64EncodedString()
      return summaries.map { "\n\(Self.word) \(name) \($0)" }
    }.joined()
  }

  /// The size and two checksums of a value, the same in every process. The checksums of two different values are equal
  /// in one of 2^64 cases.
  private static func summary(of value: Data) -> String {
    value.withUnsafeBytes { "\($0.count) \(CRC32C.checksum($0)) \(CRC32.checksum($0, after: 0))" }
  }
}
