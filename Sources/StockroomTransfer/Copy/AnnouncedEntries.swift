import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Entries that a merge is about to write to a target in which a batch may be written in part.
///
/// A marker cannot have the time of the last write there. Therefore it names the entries of a batch before
/// they are written. An entry of these that is in the target with the same value was written by the merge.
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
      // A line that cannot be read is ignored, as with the times of the marker.
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

  /// The same in every process. Two values have the same summary in one of 2^64 cases.
  private static func summary(of value: Data) -> String {
    value.withUnsafeBytes { "\($0.count) \(CRC32C.checksum($0)) \(CRC32.checksum($0, after: 0))" }
  }
}
