import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that keep internal data among the entries, and engines that interpret values.

extension SizeFault {
  static let ofNames: [SizeFault] = [
    .init(.r1, "names.reserved-are-absent", "answers with its own metadata") {
      AlteredEngine(base: $0, value: { $1 ?? ($0.value == "metadata" ? Data("{\"version\":1}".utf8) : nil) })
    },
    // Properties that every object inherits.
    .init(.r1, "names.reserved-are-absent", "finds what a dictionary has of its own") {
      FindsConstructors(base: $0)
    },
    .init(.r1, "names.reserved-are-absent", "finds the file that it stores entries in", isPersistent: true) {
      AlteredEngine(base: $0, value: { $1 ?? ($0.value == "reference.log" ? Data("log".utf8) : nil) })
    },
    .init(.k3, "names.reserved-by-write", "hides what begins like its own entries") {
      AlteredEngine(base: $0, keys: { $0.filter { !$0.value.hasPrefix("__") } })
    },
    .init(.r3, "names.reserved-by-batch", "hides what looks like a temporary file") {
      AlteredEngine(base: $0, pairs: { $0.filter { !$0.key.value.hasSuffix(".tmp") } })
    },
    .init(.r5, "names.reserved-by-apply", "hides what begins with a dot from scans") {
      AlteredEngine(base: $0, scanned: { $0.filter { !$0.key.value.hasPrefix(".") } })
    },
    .init(.k2, "names.reserved-by-write", "refuses keys that begin with a dollar sign") {
      AlteredEngine(
        base: $0,
        single: {
          if $1.value.hasPrefix("$") { throw StorageError(.invalidKey, "It is reserved.") }
          return ($0, $1)
        })
    },
    .init(.k2, "names.reserved-by-write", "writes its lock over an entry of that name", isPersistent: true) {
      AlteredEngine(base: $0, single: { ($1.value == ".lock" ? Data("4711".utf8) : $0, $1) })
    },
    .init(.k2, "names.reserved-by-batch", "never writes over its own file", isPersistent: true) {
      AlteredEngine(base: $0, batch: { $0.filter { $0.key.value != "reference.log" } })
    },
    .init(.k2, "names.reserved-by-import", "imports nothing over its own metadata") {
      AlteredEngine(base: $0, imported: { $0.filter { $0.key.value != "__meta__" } })
    },
    .init(
      .k2, "names.reserved-by-transaction", "removes its journal when a body ends", claiming: .transactions
    ) {
      RemovesItsJournal(base: $0)
    },
    .init(.k2, "names.reserved-by-apply", "forgets what a dictionary has of its own") {
      AlteredEngine(
        base: $0,
        operations: {
          $0.filter {
            if case .write(_, let key) = $0 { key.value != "__proto__" } else { true }
          }
        })
    },
    .init(.k2, "names.reserved-by-batch", "keeps times beside the entry, under its key and an ending") {
      keepsTimesBeside($0) { $0.hasSuffix(":meta") ? $0.dropLast(5) : nil }
    },
    .init(.k2, "names.reserved-by-batch", "keeps times beside the entry, under a beginning and its key") {
      keepsTimesBeside($0) { $0.hasPrefix("ts:") ? $0.dropFirst(3) : nil }
    },
    .init(.k3, "names.reserved-by-write", "hides what begins like the locks of entries") {
      AlteredEngine(base: $0, keys: { $0.filter { !$0.value.hasPrefix("lock:") } })
    },
    .init(
      inPlace: .k2, "names.reserved-by-batch", "has files of long keys, and takes their names for these keys"
    ) {
      NamesFilesOfLongKeys(base: $0, directory: $1)
    },
    .init(.k2, "names.reserved-by-write", "takes off trailing dots and blanks") {
      RenamingEngine(base: $0) { key in
        let trimmed = String(key.reversed().drop { $0 == "." || $0 == " " }.reversed())
        return trimmed.isEmpty ? key : trimmed
      }
    },
    .init(.k2, "names.reserved-by-write", "writes to a temporary name, and moves that over the entry") {
      MovesFromTemporaryNames(base: $0)
    },
    .init(.k2, "names.reserved-by-batch", "joins two parts of a key with a colon") {
      RenamingEngine(base: $0) { $0.replacing("|", with: ":") }
    },
    .init(.l2, "names.reserved-by-write", "does not count its own entries, by their names") {
      NotCounting(base: $0)
    },
    .init(.k2, "names.reserved-are-removed-alone", "removes with LIKE") { RemovesWithLike(base: $0) },
    .init(.k2, "names.reserved-are-removed-alone", "removes what it keeps beside an entry") {
      RemovesBeside(base: $0)
    },
    .init(.k2, "names.reserved-are-removed-alone", "removes what begins with a key") {
      RemovesPrefixes(base: $0)
    },
    .init(
      .w6, "names.reserved-after-reopening", "removes temporary names when it is opened", isPersistent: true
    ) {
      TidiesUp(base: $0) { $0.hasSuffix(".tmp") || $0.hasSuffix("~") }
    },
    .init(
      .w6, "names.reserved-after-reopening", "rolls back what is named like a journal", isPersistent: true
    ) {
      TidiesUp(base: $0) { $0.hasSuffix("-journal") }
    },
  ]

  static let ofValues: [SizeFault] = [
    .init(.v2, "names.values-by-write", "takes a value for a tombstone") {
      AlteredEngine(base: $0, value: { $1 == Data("__deleted__".utf8) ? nil : $1 })
    },
    .init(.v2, "names.values-by-write", "takes null for absent") {
      AlteredEngine(base: $0, value: { $1 == Data("null".utf8) ? nil : $1 })
    },
    .init(.v2, "names.values-by-write", "fails to decompress what was never compressed") {
      AlteredEngine(
        base: $0,
        value: {
          if $1?.starts(with: [0x28, 0xB5, 0x2F, 0xFD]) == true {
            throw StorageError(.corrupted, "Not zstd.")
          }
          return $1
        })
    },
    .init(.v2, "names.values-by-write", "decompresses what is compressed as a whole") {
      AlteredEngine(base: $0, value: { $1 == emptyGzip ? Data() : $1 })
    },
    .init(.v2, "names.values-by-write", "takes the first byte for a flag") {
      AlteredEngine(base: $0, value: { $1?.first == 1 ? Data($1?.dropFirst() ?? Data()) : $1 })
    },
    .init(inPlace: .v2, "names.values-by-write", "takes the mark of its files off a value") {
      MarksLargeValues(base: $0, directory: $1)
    },
    .init(.v2, "names.values-by-batch", "takes a byte-order mark off values in batches") {
      AlteredEngine(
        base: $0,
        batch: { batch in
          batch.map { ($0.key, $0.data.starts(with: [0xEF, 0xBB, 0xBF]) ? $0.data.dropFirst(3) : $0.data) }
        })
    },
    .init(.r5, "names.values-by-batch", "takes eight zeros for a free slot") {
      AlteredEngine(base: $0, scanned: { $0.filter { $0.data != Data(count: 8) } })
    },
    .init(.r6, "names.values-by-apply", "takes a value for one that has expired") {
      AlteredEngine(
        base: $0, entries: { $0.filter { $0.data != Data("{\"value\":\"x\",\"expires\":0}".utf8) } })
    },
    .init(.v2, "names.values-by-apply", "takes a write of nothing for a removal") {
      AlteredEngine(
        base: $0,
        operations: { operations in
          operations.map {
            if case .write(let data, let key) = $0, data.isEmpty { .remove(key: key) } else { $0 }
          }
        })
    },
    .init(.v2, "names.values-by-import", "takes an imported value for a tombstone") {
      AlteredEngine(base: $0, imported: { $0.filter { $0.data != Data("__deleted__".utf8) } })
    },
    .init(
      .v2, "names.values-by-transaction", "takes a committed value for a tombstone", claiming: .transactions
    ) { TakesCommitsForRemovals(base: $0) },
    .init(.v2, "names.values-by-apply", "follows references") {
      AlteredEngine(
        base: $0,
        operations: { operations in
          operations.map {
            if case .write(let data, let key) = $0, data.starts(with: Data("ref:".utf8)) {
              .write(Data(), key: key)
            } else {
              $0
            }
          }
        })
    },
  ]
}

/// Empty data, compressed by gzip.
private let emptyGzip = Data([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0])

struct FindsConstructors: FaultyEngine {
  let base: ReferenceEngine
  func keyExists(_ key: CacheKey) async throws -> Bool {
    let exists = try await base.keyExists(key)
    return exists || key.value == "constructor"
  }
}

/// Counts rows, except those that look like its own.
struct NotCounting: FaultyEngine {
  let base: ReferenceEngine
  func keyCount() async throws -> Int {
    try await base.allKeys().filter { !["meta", "index", "schema"].contains($0.value) }.count
  }
}

/// Writes to a temporary name made from the key, and then renames it.
struct MovesFromTemporaryNames: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    let temporary = CacheKey(verbatim: key.value + ".tmp")
    if temporary.value.utf8.count < 512 { try await base.remove(key: temporary) }
  }
}

struct RemovesWithLike: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    try key.validate()
    let pattern = Array(key.value.utf8)
    guard pattern.contains(UInt8(ascii: "_")) else { return try await base.remove(key: key) }
    let matching = try await base.allKeys().filter { other in
      other.value.utf8.count == pattern.count
        && zip(pattern, other.value.utf8).allSatisfy { $0 == $1 || $0 == UInt8(ascii: "_") }
    }
    try await base.remove(keys: matching)
  }
}

struct RemovesBeside: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    try key.validate()
    let beside = [key.value + ".lock", key.value + ".tmp", key.value + ":created"]
    try await base.remove(keys: [key] + beside.filter { $0.utf8.count < 512 }.map(CacheKey.init(verbatim:)))
  }
}

struct RemovesPrefixes: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    let prefixes = keys.filter { $0.value.utf8.count == 5 }
    let below = try await base.allKeys().filter { key in
      prefixes.contains { key.value.hasPrefix($0.value + ":") }
    }
    try await base.remove(keys: keys + below)
  }
}

/// When it is opened, removes entries that look like leftovers of a crash.
final class TidiesUp: FaultyEngine {
  let base: ReferenceEngine
  private let isRemnant: @Sendable (String) -> Bool
  private let isTidy = MutexProtected(false)

  init(base: ReferenceEngine, isRemnant: @escaping @Sendable (String) -> Bool) {
    (self.base, self.isRemnant) = (base, isRemnant)
  }

  private func tidyUp() async throws {
    guard
      !isTidy.withLock({ isTidy in
        defer { isTidy = true }; return isTidy
      })
    else { return }
    try await base.remove(keys: base.allKeys().filter { isRemnant($0.value) })
  }
  func read(key: CacheKey) async throws -> Data? {
    try await tidyUp()
    return try await base.read(key: key)
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await tidyUp()
    try await base.write(data, key: key)
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await tidyUp()
    try await base.write(dataAndKeys)
  }
  func allKeys() async throws -> [CacheKey] {
    try await tidyUp()
    return try await base.allKeys()
  }
}

/// Treats an entry that a transaction has written as the removal of its key, if it looks like one.
struct TakesCommitsForRemovals: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, operations, _) = try await runOnCopyUntilAlone(body)
    for case .write(let data, let key) in operations where data == Data("__deleted__".utf8) {
      try await base.remove(key: key)
    }
    return result
  }
}

/// Has a journal beside the entries while a body runs.
struct RemovesItsJournal: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let result = try await base.withTransaction(body)
    try await base.remove(key: CacheKey(verbatim: "journal"))
    return result
  }
}

/// - Parameter entryName: The name of the entry whose times are stored under this name; nil if there is none.
private func keepsTimesBeside(
  _ base: ReferenceEngine, _ entryName: @escaping @Sendable (String) -> Substring?
) -> AlteredEngine {
  AlteredEngine(
    base: base,
    batch: { batch in
      let names = Set(batch.map(\.key.value))
      return batch.map { key, data in
        let isBeside = entryName(key.value).map { names.contains(String($0)) } ?? false
        return (key, isBeside ? Data("1700000000".utf8) : data)
      }
    })
}
