import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines that confuse keys, or refuse valid ones.

extension FaultyEngineCase {
  static let ofKeys: [FaultyEngineCase] = [
    .init(.k3, "lists no key that begins like the name of a file of the system", also: [.k2]) {
      ListsNoNamesOfTheSystem(base: $0)
    },
    .init(.k1, "answers for keys that are too long") { AnswersForLongKeys(base: $0) },
    // Columns and indices whose size is in characters.
    .init(.k1, "measures keys in characters") {
      RenamingEngine(base: $0, length: \.count) { $0.utf8.count > 511 ? CacheKey($0).value : $0 }
    },
    .init(.k1, "has room for the empty key", also: [.w4]) {
      RenamingEngine(base: $0, length: { max(1, $0.utf8.count) }) { $0 }
    },
    // One file for each entry, named like the key: the names of files have at most 255 bytes.
    .init(.k1, "refuses keys over 255 bytes", also: [.k2, .k3, .r5, .d2]) {
      RenamingEngine(base: $0, length: { $0.utf8.count > 255 ? 512 : $0.utf8.count }) { $0 }
    },
    .init(.k1, "looks at the first key of a request") { LooksAtTheFirstKey(base: $0) },
    .init(.k1, "takes any bound for a scan") { ScansWithAnyBound(base: $0) },
    .init(.k1, "looks at keys when there are entries") { LooksAtKeysIfThereAreEntries(base: $0) },
    .init(.k1, "takes any bounds for a scan that finds nothing") { ScansBetweenAnyBounds(base: $0) },
    .init(.k1, "takes invalid keys for absent when it reads entries") {
      ReadsEntriesOfAnyKeys(base: $0)
    },

    // Only longer keys are hashed.
    .init(.k1, "refuses keys whose escaped names are too long") {
      RenamingEngine(
        base: $0,
        length: { $0.utf8.count < 256 && escapedName($0).utf8.count > 255 ? 512 : $0.utf8.count },
        rename: { $0 })
    },
    .init(.k2, "cuts escaped names at 255 bytes", also: [.k1]) {
      RenamingEngine(base: $0) { key in
        let name = escapedName(key)
        return key.utf8.count < 256 && name.utf8.count > 255
          ? String(decoding: name.utf8.prefix(255), as: UTF8.self) : key
      }
    },
    // Two strings are equal in Swift if they are canonically equivalent.
    .init(.k2, "collects what it applies by strings") {
      AlteredEngine(base: $0, operations: { $0.mergingEqualStrings { $0.keyOfChange } })
    },
    .init(.k2, "collects what it imports by strings") {
      AlteredEngine(base: $0, imported: { $0.mergingEqualStrings { $0.key } })
    },
    .init(.k2, "collects what it removes by strings") {
      AlteredEngine(base: $0, removal: { $0.mergingEqualStrings { $0 } })
    },
    .init(.k2, "ends keys at line separators", also: [.k3]) {
      RenamingEngine(base: $0) { key in
        let ends: Set<Unicode.Scalar> = ["\u{B}", "\u{C}", "\u{85}", "\u{2028}", "\u{2029}"]
        return String(String.UnicodeScalarView(key.unicodeScalars.prefix { !ends.contains($0) }))
      }
    },

    .init(.k2, "ignores case", also: [.k3]) { RenamingEngine(base: $0) { $0.lowercased() } },
    .init(.k2, "composes accents", also: [.k3]) {
      RenamingEngine(base: $0) { $0.precomposedStringWithCanonicalMapping }
    },
    .init(.k2, "trims blanks", also: [.k3]) {
      RenamingEngine(base: $0) { $0.trimmingCharacters(in: .whitespaces) }
    },
    .init(.k2, "ends keys at NUL", also: [.k3]) {
      RenamingEngine(base: $0) { String($0.prefix { $0 != "\0" }) }
    },
    .init(.k2, "looks at 255 bytes of a key", also: [.k3]) {
      RenamingEngine(base: $0) { String(decoding: $0.utf8.prefix(255), as: UTF8.self) }
    },
    .init(.k2, "looks at 400 bytes of a key", also: [.k3]) {
      RenamingEngine(base: $0) { String(decoding: $0.utf8.prefix(400), as: UTF8.self) }
    },
    .init(.k2, "decodes percent signs", also: [.k3]) {
      RenamingEngine(base: $0) { $0.removingPercentEncoding ?? $0 }
    },
    .init(.k2, "normalizes paths", also: [.k3, .r5]) {
      RenamingEngine(base: $0) { $0.contains("/") ? URL(filePath: $0).standardizedFileURL.path() : $0 }
    },
    // A column of type integer or real stores a text that looks like a number as one.
    .init(.k2, "takes keys for numbers", also: [.k3]) {
      RenamingEngine(base: $0) { Double($0).map { "\($0)" } ?? $0 }
    },
    .init(.k2, "keeps the length of a key in a byte", also: [.k3]) {
      RenamingEngine(base: $0) { String(decoding: $0.utf8.prefix($0.utf8.count % 256), as: UTF8.self) }
    },
    // The hash replaces the key, and is too short.
    .init(.k2, "finds keys by their FNV-1a hash alone", also: [.k3]) {
      RenamingEngine(base: $0) { key in
        // Shorter keys are stored unchanged.
        key.utf8.count < 4
          ? key
          : "hash \(key.utf8.reduce(UInt32(0x811C_9DC5)) { ($0 ^ UInt32($1)) &* 0x0100_0193 })"
      }
    },
    .init(.k2, "looks at the beginning, the middle and the end of long keys", also: [.k3]) {
      RenamingEngine(base: $0) { key in
        let bytes = Array(key.utf8)
        if bytes.count <= 96 { return key }
        let parts = [
          bytes.prefix(32), bytes[(bytes.count / 2 - 16)..<(bytes.count / 2 + 16)], bytes.suffix(32),
        ]
        return "\(bytes.count) " + parts.map { String(decoding: $0, as: UTF8.self) }.joined()
      }
    },
    .init(.k2, "keeps UUIDs in a column of their own", also: [.k3]) {
      RenamingEngine(base: $0) { UUID(uuidString: $0)?.uuidString ?? $0 }
    },
    .init(.k2, "takes keys with the same hash for one", also: [.k3]) {
      RenamingEngine(base: $0) { key in
        key.utf8.count < 403
          ? key : "\(key.utf8.reduce(5_381 as UInt32) { ($0 &* 33 &+ UInt32($1)) % 65_521 })"
      }
    },
    // An index with another collation than the table's.
    .init(.k2, "looks up times without blanks") { LooksUpTimesWithoutBlanks(base: $0) },
    .init(.k2, "looks up times without case") { LooksUpTimesWithoutCase(base: $0) },
    // Entries in folders, and folders are removed with all their contents.
    .init(.k2, "removes what is below a key") { RemovesWhatIsBelow(base: $0) },

    .init(.k3, "lists keys in lower case") { ListsLowercaseKeys(base: $0) },
    .init(.k3, "writes batches under the texts of their keys") { UsesTexts(base: $0, in: .batches) },
    .init(.l1, "looks for many keys by their texts", also: [.k3]) { UsesTexts(base: $0, in: .questions) },
    .init(.r5, "scans from the text of a key on", also: [.k3]) { UsesTexts(base: $0, in: .scans) },
    .init(.k3, "lists hashes of keys", also: [.r3]) { ListsHashedKeys(base: $0) },
    .init(.k3, "composes keys in lists", also: [.r6]) { ComposesKeysInLists(base: $0) },
    .init(.k3, "lists a key for each write", also: [.r3, .c1]) { ListsEachWrite(base: $0) },
    .init(.k3, "lists removed keys", also: [.r3, .l2]) { ListsRemovedKeys(base: $0) },

    .init(persistent: .k4, "writes to paths") { FollowsPaths(base: $0, directory: $1) },
    .init(persistent: .k4, "reads from paths") { ReadsPaths(base: $0, directory: $1) },
    .init(persistent: .k4, "writes batches to paths") { WritesBatchesToPaths(base: $0, directory: $1) },
    .init(persistent: .k4, "asks paths for times") { AsksPathsForTimes(base: $0, directory: $1) },
  ]
}

struct ReadsEntriesOfAnyKeys: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await base.readEntries(keys: keys.filter { (1...511).contains($0.value.utf8.count) })
  }
}

struct AnswersForLongKeys: FaultyEngine {
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? {
    key.value.utf8.count > 511 ? nil : try await base.read(key: key)
  }
}

/// Validates the other keys only when it reads them, and treats invalid ones as absent.
struct LooksAtTheFirstKey: FaultyEngine {
  let base: ReferenceEngine
  func read(keys: [CacheKey]) async throws -> [Data] {
    try keys.first?.validate()
    return try await base.read(keys: keys.filter { (1...511).contains($0.value.utf8.count) })
  }
}

struct ScansWithAnyBound: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    do { try range.validate() } catch { return [] }
    return try await base.scan(range, limit: limit)
  }
}

/// Has padded columns, which are compared without trailing blanks.
struct LooksUpTimesWithoutBlanks: FaultyEngine {
  let base: ReferenceEngine
  func createdAt(key: CacheKey) async throws -> Date? {
    if let date = try await base.createdAt(key: key) { return date }
    let trimmed = String(key.value.reversed().drop { $0 == " " }.reversed())
    return if trimmed.isEmpty { nil } else { try await base.createdAt(key: CacheKey(verbatim: trimmed)) }
  }
}

struct LooksUpTimesWithoutCase: FaultyEngine {
  let base: ReferenceEngine
  func createdAt(key: CacheKey) async throws -> Date? {
    if let date = try await base.createdAt(key: key) { return date }
    let other = try await base.allKeys().first { $0.value.lowercased() == key.value.lowercased() }
    return if let other { try await base.createdAt(key: other) } else { nil }
  }
}

struct RemovesWhatIsBelow: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    try key.validate()
    let below = try await base.scan(.prefix(key.value + "/"), limit: nil).map(\.key)
    try await base.remove(keys: [key] + below)
  }
}

struct ListsLowercaseKeys: FaultyEngine {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] {
    try await base.allKeys().map { CacheKey(verbatim: $0.value.lowercased()) }
  }
}

struct ListsHashedKeys: FaultyEngine {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] { try await base.allKeys().map { CacheKey($0.value) } }
}

struct ComposesKeysInLists: FaultyEngine {
  let base: ReferenceEngine
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().map { entry in
      var entry = entry
      entry.key = CacheKey(verbatim: entry.key.value.precomposedStringWithCanonicalMapping)
      return entry
    }
  }
}

/// Lists the keys in its log, which contains a key once for each write.
final class ListsEachWrite: FaultyEngine {
  let base: ReferenceEngine
  private let again = MutexProtected<[CacheKey]>([])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    if try await base.keyExists(key) { again.withLock { $0.append(key) } }
    try await base.write(data, key: key)
  }
  func remove(key: CacheKey) async throws {
    try await base.remove(key: key)
    again.withLock { $0.removeAll { $0 == key } }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    again.withLock { $0 = [] }
  }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() + again.withLock { $0 } }
}

final class ListsRemovedKeys: FaultyEngine {
  let base: ReferenceEngine
  private let removed = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    if try await base.keyExists(key) { removed.withLock { _ = $0.insert(key) } }
    try await base.remove(key: key)
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    removed.withLock { $0 = [] }
  }
  func allKeys() async throws -> [CacheKey] {
    let keys = try await base.allKeys()
    return keys + removed.withLock { $0 }.subtracting(keys)
  }
}

/// Writes a copy of each value to a file with the key as its path.
struct FollowsPaths: FaultyEngine {
  let base: ReferenceEngine
  let directory: URL
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    if key.value.hasPrefix("../") { try? data.write(to: directory.appending(path: key.value)) }
  }
}

/// Looks for the value in a file with the key as its path.
struct ReadsPaths: FaultyEngine {
  let base: ReferenceEngine
  let directory: URL
  func read(key: CacheKey) async throws -> Data? {
    if let data = try await base.read(key: key) { return data }
    guard key.value.hasPrefix("../") else { return nil }
    return try? Data(contentsOf: directory.appending(path: key.value))
  }
}

/// Stages each entry of a batch in a file with the key as its path.
struct WritesBatchesToPaths: FaultyEngine {
  let base: ReferenceEngine
  let directory: URL
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    for case .write(let data, let key) in operations where key.value.hasPrefix("../") {
      try? data.write(to: directory.appending(path: key.value))
    }
  }
}

struct AsksPathsForTimes: FaultyEngine {
  let base: ReferenceEngine
  let directory: URL
  func createdAt(key: CacheKey) async throws -> Date? {
    if let date = try await base.createdAt(key: key) { return date }
    guard key.value.hasPrefix("../") else { return nil }
    let path = directory.appending(path: key.value).path(percentEncoded: false)
    return try? FileManager.default.attributesOfItem(atPath: path)[.modificationDate] as? Date
  }
}

/// Does not validate a key if there are no entries.
struct LooksAtKeysIfThereAreEntries: FaultyEngine {
  let base: ReferenceEngine
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await base.keyCount() == 0 ? [] : try await base.keysExist(keys)
  }
}

/// Does not validate bounds if nothing can be between them.
struct ScansBetweenAnyBounds: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    if let after = range.after, let upTo = range.upTo, upTo <= after { return [] }
    return try await base.scan(range, limit: limit)
  }
}
