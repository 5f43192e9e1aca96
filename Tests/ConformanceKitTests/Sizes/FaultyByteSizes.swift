import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines with a maximum size of values, messages and results, and stores that lose items.

extension SizeFault {
  static let ofBytes: [SizeFault] = [
    .init(
      .v2, "sizes.bytes-of-a-value", "has a column of 400 KiB",
      shows: "no failure with 409600 bytes; with 409601"
    ) {
      ChangingEngine(base: $0, onTheWayIn: { $0.prefix(400 << 10) })
    },
    .init(
      .v2, "sizes.bytes-of-a-value", "has a length of 15 bits",
      shows: "no failure with 32767 bytes; with 32768"
    ) {
      ChangingEngine(base: $0, onTheWayIn: { $0.prefix($0.count % 32_768) })
    },
    .init(.v2, "sizes.bytes-of-a-value", "takes a tag of seven bits for a length", shows: "with 128 bytes") {
      ChangingEngine(base: $0, onTheWayIn: { $0.count < 1_000 ? $0.prefix($0.count % 128) : $0 })
    },
    .init(
      .v2, "sizes.bytes-of-a-value", "cuts values in a log of 16 MiB", at: .standard,
      shows: "no failure with 16777216 bytes; with 16777217"
    ) {
      ChangingEngine(base: $0, onTheWayIn: { $0.prefix(16 << 20) })
    },
    .init(
      .v2, "sizes.bytes-of-a-value", "refuses a message of more than 4 MiB", at: .standard,
      shows: "no failure with 4194304 bytes; with 4194305"
    ) {
      AlteredEngine(base: $0, single: { try ($0.inMessage(of: 4 << 20), $1) })
    },
    .init(.v2, "sizes.bytes-of-a-value", "applies values of 65,535 bytes", shows: "with 65536 bytes") {
      AlteredEngine(
        base: $0,
        operations: { operations in
          operations.map {
            if case .write(let data, let key) = $0 { .write(data.prefix(65_535), key: key) } else { $0 }
          }
        })
    },
    .init(
      .v2, "sizes.bytes-of-a-value", "stores a page more for values that end with one",
      shows: "with 16384 bytes"
    ) {
      AlteredEngine(
        base: $0,
        batch: { batch in
          batch.map {
            ($0.key, $0.data.count > 0 && $0.data.count % 16_384 == 0 ? $0.data + Data(count: 1) : $0.data)
          }
        })
    },
    .init(.v2, "sizes.bytes-of-a-value", "writes a short value over the first chunk of a long one in batches")
    {
      LeavesChunks(base: $0, of: .overwrittenValues)
    },
    .init(
      .v2, "sizes.bytes-of-a-value", "reads on when the last chunk of a value is full",
      shows: "of 65536 bytes over 1048577"
    ) { ReadsPastFullChunks(base: $0) },
    .init(.v2, "sizes.bytes-of-a-value", "finds the chunks of a removed value when its key is imported") {
      LeavesChunks(base: $0, of: .removedValues)
    },
    .init(.v2, "sizes.bytes-of-an-entry", "keeps no more than a page of a key over 255 bytes and its value") {
      AlteredEngine(
        base: $0,
        batch: { batch in
          batch.map {
            let length = $0.key.value.utf8.count
            return ($0.key, length > 255 ? $0.data.prefix(max(0, 4_096 - length)) : $0.data)
          }
        })
    },
    .init(.v2, "sizes.bytes-of-an-entry", "loses the last byte of what just fits a cell") {
      AlteredEngine(
        base: $0,
        batch: { batch in
          batch.map {
            ($0.key, $0.key.value.utf8.count + $0.data.count == 4_080 ? $0.data.dropLast() : $0.data)
          }
        })
    },
    .init(.w1, "sizes.bytes-of-a-batch", "writes the first mebibyte of a batch", shows: "with 1048577 bytes")
    {
      AlteredEngine(base: $0, batch: { $0.within(1 << 20) })
    },
    .init(.w1, "sizes.bytes-of-a-batch", "writes a transaction log of 64 KiB") {
      AlteredEngine(base: $0, batch: { $0.within(65_536) })
    },
    .init(.w1, "sizes.bytes-of-a-batch", "refuses batches of more than 10 MiB", at: .standard) {
      AlteredEngine(
        base: $0,
        batch: {
          if $0.map(\.data.count).reduce(0, +) > 10 << 20 {
            throw StorageError(.io, "The message is too long.")
          }
          return $0
        })
    },
    .init(
      .w1, "sizes.bytes-of-few-values", "forgets the headers of large values in a log of 4 MiB",
      at: .standard,
      shows: "with 2 values of 4194288 bytes"
    ) {
      AlteredEngine(base: $0, batch: { $0.withoutWhatHasNoRoom })
    },
    .init(
      .w1, "sizes.bytes-of-few-values", "forgets the headers of large values in a transaction", at: .standard,
      shows: "with 3 values of 4194288 bytes"
    ) {
      AlteredEngine(
        base: $0,
        operations: { operations in
          let writes = operations.compactMap { operation -> (key: CacheKey, data: Data)? in
            if case .write(let data, let key) = operation { (key, data) } else { nil }
          }
          return writes.withoutWhatHasNoRoom.count < writes.count ? operations.dropLast() : operations
        })
    },
    .init(.r3, "sizes.bytes-of-a-batch", "returns the entries of one mebibyte", shows: "with 1048577 bytes") {
      AlteredEngine(base: $0, pairs: { $0.within(1 << 20) })
    },
    .init(.r2, "sizes.bytes-of-a-batch", "answers with 64 KiB at most", shows: "with 65537 bytes") {
      AlteredEngine(base: $0, requested: { $0.within(65_536) })
    },
    .init(.r5, "sizes.bytes-of-a-batch", "scans 4 MiB", at: .standard, shows: "with 4194305 bytes") {
      AlteredEngine(base: $0, scanned: { $0.within(4 << 20) })
    },
    .init(.v2, "sizes.too-large-by-every-way", "refuses large values in batches only", at: .standard) {
      AlteredEngine(
        base: $0,
        batch: { batch in
          for (_, data) in batch where data.count > 64 << 20 {
            throw StorageError(.valueTooLarge, "It is too large.")
          }
          return batch
        })
    },
  ]

  static let ofStores: [SizeFault] = [
    .init(store: .s4, "store.sizes", "loads 1,000 items", shows: "with 1001") {
      PassingEngine(base: $0, entries: { Array($0.prefix(1_000)) })
    },
    .init(store: .s4, "store.sizes", "loads pages of 100 items, the last of them first", shows: "with 101") {
      PassingEngine(base: $0, entries: { $0.suffix($0.count % 100) + $0.dropLast($0.count % 100) })
    },
    .init(store: .s3, "store.sizes-of-chains", "inserts 500 items of many") {
      PassingEngine(base: $0, operations: { Array($0.prefix(500)) })
    },
    .init(store: .s8, "ways.of-storing", "hashes the identifiers of many items at once") {
      PassingEngine(
        base: $0,
        operations: { operations in
          operations.count < 2
            ? operations
            : operations.map {
              switch $0 {
              case .write(let data, let key): .write(data, key: CacheKey("\(key.value) hashed"))
              case .remove(let key): .remove(key: CacheKey("\(key.value) hashed"))
              case .removeAll: .removeAll
              }
            }
        })
    },
  ]
}

extension Data {
  fileprivate func inMessage(of size: Int) throws -> Data {
    if count > size { throw StorageError(.io, "The message is longer than \(size) bytes.") }
    return self
  }
}

extension [(key: CacheKey, data: Data)] {
  /// The entries that fit into a log of 4 MiB, which stores values beyond 1.25 MiB separately. A batch that fills it,
  /// not counting headers, loses its last entry.
  fileprivate var withoutWhatHasNoRoom: Self {
    let sizes = map(\.data.count).filter { $0 > 5 << 18 }
    let (values, log) = (sizes.reduce(0, +), 4 << 20)
    return values <= log && values + 16 * sizes.count > log ? dropLast() : self
  }

  /// The first entries whose values have at most this many bytes together.
  fileprivate func within(_ bytes: Int) -> Self {
    var sum = 0
    return Array(
      prefix {
        sum += $0.data.count
        return sum <= bytes
      })
  }
}

/// Keeps long values in chunks, of which it only removes the first with the value.
final class LeavesChunks: FaultyEngine {
  enum Former { case overwrittenValues, removedValues }
  let base: ReferenceEngine
  private let former: Former
  /// The chunks that belong to no value.
  private let left = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine, of former: Former) { (self.base, self.former) = (base, former) }

  private func leave(_ old: [(key: CacheKey, data: Data)]) {
    left.withLock { left in
      for (key, data) in old where data.count > 256 << 10 { left[key] = data.dropFirst(256 << 10) }
    }
  }
  /// The value with what was left under its key.
  private func joined(_ data: Data, _ key: CacheKey) -> Data {
    data + (left.withLock { $0.removeValue(forKey: key) } ?? Data())
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    if former == .overwrittenValues {
      leave(try await base.readDataAndKeys(keys: dataAndKeys.map(\.key)))
      return try await base.write(
        dataAndKeys.map { ($0.key, $0.data.count > 256 << 10 ? $0.data : joined($0.data, $0.key)) })
    }
    try await base.write(dataAndKeys)
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    guard former == .removedValues else {
      return try await base.write(entries.map { (key: $0.key, data: $0.data) })
    }
    try entries.map(\.key).validate()
    try await base.write(entries.map { (key: $0.key, data: joined($0.data, $0.key)) })
  }
  func remove(key: CacheKey) async throws {
    if former == .removedValues { leave(try await base.readDataAndKeys(keys: [key])) }
    try await base.remove(key: key)
  }
}

/// An engine that alters the changes and the entries of a store, which is then faulty.
struct PassingEngine: ApplyingEngine {
  let base: any StorageEngine
  var entries: @Sendable ([StorageEntry]) -> [StorageEntry] = { $0 }
  var operations: @Sendable ([StorageOperation]) -> [StorageOperation] = { $0 }

  var capabilities: EngineCapabilities { base.capabilities }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(self.operations(operations))
  }
  func read(key: CacheKey) async throws -> Data? { try await base.read(key: key) }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
  func readAllEntries() async throws -> [StorageEntry] { entries(try await base.readAllEntries()) }
}

/// Keeps values in chunks of 64 KiB, of which the first shorter one is the last. After a shorter value that fills its chunks, the
/// remaining chunks of the one before it follow.
final class ReadsPastFullChunks: FaultyEngine {
  private static let size = 65_536
  let base: ReferenceEngine
  init(base: ReferenceEngine) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws {
    guard !data.isEmpty, data.count.isMultiple(of: Self.size), let previous = try await base.read(key: key),
      previous.count > data.count
    else { return try await base.write(data, key: key) }
    try await base.write(data + previous.dropFirst(data.count), key: key)
  }
}
