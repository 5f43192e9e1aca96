import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import TestFixtures

// Engines that change values, or share memory with their callers.

extension FaultyEngineCase {
  static let ofValues: [FaultyEngineCase] = [
    .init(.v1, "takes empty for absent", also: [.v2, .w1, .w3]) { TakesEmptyForAbsent(base: $0) },
    .init(.v1, "leaves empty values out of batches", also: [.w1, .w3]) {
      LeavesOutEmptyValues(base: $0)
    },
    .init(.v1, "lists no empty entries", also: [.r3, .r6]) { ListsNoEmptyEntries(base: $0) },

    .init(.v2, "keeps 65,536 bytes of a value") {
      ChangingEngine(base: $0, onTheWayIn: { $0.prefix(65_536) })
    },
    .init(.v2, "keeps a mebibyte of a value") {
      ChangingEngine(base: $0, onTheWayIn: { $0.prefix(1 << 20) })
    },
    .init(.v2, "keeps the length of a value in three bytes") {
      ChangingEngine(base: $0, onTheWayIn: { $0.prefix($0.count % (1 << 24)) })
    },
    // Chunks of a file bucket: a last chunk that is full is lost.
    .init(.v2, "loses a last part of 255 KiB") {
      ChangingEngine(base: $0, onTheWayIn: { $0.count == 255 << 10 ? Data() : $0 })
    },
    .init(.v2, "takes values for text") {
      ChangingEngine(
        base: $0, onTheWayIn: { $0.count < 5_000 ? Data(String(decoding: $0, as: UTF8.self).utf8) : $0 })
    },
    .init(.v2, "counts a key as a part of its value") { CountsKeys(base: $0) },
    .init(.v2, "removes what looks like the padding of a cipher") {
      ChangingEngine(
        base: $0,
        onTheWayOut: { value in
          guard let last = value.last, value.count.isMultiple(of: 16), (1...16).contains(last),
            value.suffix(Int(last)).allSatisfy({ $0 == last })
          else { return value }
          return Data(value.dropLast(Int(last)))
        })
    },
    .init(.v2, "takes values for integers") {
      ChangingEngine(
        base: $0,
        onTheWayIn: { value in
          guard value.count <= 20, value.first != UInt8(ascii: "0") else { return value }
          return Int(String(decoding: value, as: UTF8.self)).map { Data(String($0).utf8) } ?? value
        })
    },
    .init(.v3, "returns values in eight buffers, in turn") { UsesBuffersAgain(base: $0) },
    .init(.w1, "removes equal values of one batch together", also: [.c1, .w4, .r3]) {
      RemovesEqualValues(base: $0)
    },
    .init(.v2, "ends values at NUL") {
      ChangingEngine(base: $0, onTheWayIn: { $0.prefix { $0 != 0 } })
    },
    .init(.v2, "trims zeros") {
      ChangingEngine(
        base: $0,
        onTheWayIn: { value in value.prefix((value.lastIndex { $0 != 0 } ?? -1) - value.startIndex + 1) })
    },
    .init(.v2, "converts line endings") {
      ChangingEngine(
        base: $0,
        onTheWayIn: {
          $0.count < 100 ? Data(String(decoding: $0, as: UTF8.self).replacing("\r\n", with: "\n").utf8) : $0
        })
    },
    .init(.v2, "takes counts for indices") {
      ChangingEngine(
        base: $0, onTheWayIn: { $0.startIndex == 0 ? $0 : $0.prefix(upTo: max($0.startIndex, $0.count)) })
    },
    .init(.v2, "cuts values in scans", also: [.r5]) { CutsValuesInScans(base: $0) },
    .init(.v2, "has no room for more than 64 MiB and does not know it") {
      RefusesLargeValues(base: $0, code: .io)
    },
    .init(.v2, "forgets the earlier value when the new one is too large") { MakesRoomFirst(base: $0) },
    .init(.v2, "writes a batch up to the value that is too large") { LooksAtSizesLate(base: $0) },
    .init(.v2, "imports entries up to the value that is too large") {
      LooksAtSizesOfImportsLate(base: $0)
    },
    .init(.v2, "imports 48 MiB of a value") { CutsImportedValues(base: $0) },
    inMemory(.v2, "a body forgets the earlier value when the new one is too large") {
      AltersTransactions(base: $0) { MakesRoomInBodies($0) }
    },

    .init(.v3, "returns slices") { ReturnsSlices(base: $0) },
    // A database returns pointers into its pages.
    .init(.v3, "gives its own memory away") { GivesItsMemoryAway(base: $0) },
    .init(.v3, "gives its own memory to those who scan") { LendsMemoryToScans(base: $0) },
    inMemory(.v3, "gives its own memory to bodies") { GivesItsMemoryAway(base: $0, inBodies: true) },
  ]
}

struct TakesEmptyForAbsent: FaultyEngine {
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? {
    guard let data = try await base.read(key: key), !data.isEmpty else { return nil }
    return data
  }
}

struct LeavesOutEmptyValues: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    try await base.write(dataAndKeys.filter { !$0.data.isEmpty })
  }
}

struct ListsNoEmptyEntries: FaultyEngine {
  let base: ReferenceEngine
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().filter { !$0.data.isEmpty }
  }
}

struct CutsValuesInScans: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await base.scan(range, limit: limit).map { ($0.key, Data($0.data.prefix(1 << 20))) }
  }
}

struct RefusesLargeValues: FaultyEngine {
  let base: ReferenceEngine
  let code: StorageError.Code
  func write(_ data: Data, key: CacheKey) async throws {
    if data.count > 64 << 20 { throw StorageError(code, "The value has \(data.count) bytes.") }
    try await base.write(data, key: key)
  }
}

/// Has room for 64 MiB and 256 bytes for a value with its key.
struct CountsKeys: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    if data.count + key.value.utf8.count > 64 << 20 + 256 {
      throw StorageError(.valueTooLarge, "The entry is too large.")
    }
    try await base.write(data, key: key)
  }
}

/// Removes the old entry before it detects that the new value is too large.
struct MakesRoomFirst: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    if data.count > 64 << 20 {
      try await base.remove(key: key)
      throw StorageError(.valueTooLarge, "The value has \(data.count) bytes.")
    }
    try await base.write(data, key: key)
  }
}

/// Writes the entries of a batch before the first that is too large, and then throws.
struct LooksAtSizesLate: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    guard let index = dataAndKeys.firstIndex(where: { $0.data.count > 64 << 20 }) else {
      return try await base.write(dataAndKeys)
    }
    try dataAndKeys.map(\.key).validate()
    try await base.write(Array(dataAndKeys[..<index]))
    throw StorageError(.valueTooLarge, "The value has \(dataAndKeys[index].data.count) bytes.")
  }
}

/// Imports the entries before the first that is too large, and then throws.
struct LooksAtSizesOfImportsLate: FaultyEngine {
  let base: ReferenceEngine
  func writeEntries(_ entries: [StorageEntry]) async throws {
    guard let index = entries.firstIndex(where: { $0.data.count > 64 << 20 }) else {
      return try await base.writeEntries(entries)
    }
    try entries.map(\.key).validate()
    try await base.writeEntries(Array(entries[..<index]))
    throw StorageError(.valueTooLarge, "The value has \(entries[index].data.count) bytes.")
  }
}

struct CutsImportedValues: FaultyEngine {
  let base: ReferenceEngine
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(
      entries.map { entry in
        var entry = entry
        entry.data = Data(entry.data.prefix(48 << 20))
        return entry
      })
  }
}

/// Removes the old entry before it detects that the new value is too large.
final class MakesRoomInBodies: ForwardingTransaction {
  override func write(_ data: Data, key: CacheKey) throws {
    guard data.count > 64 << 20 else { return try base.write(data, key: key) }
    try base.remove(key: key)
    throw StorageError(.valueTooLarge, "The value has \(data.count) bytes.")
  }
}

/// Returns slices of a larger buffer.
struct ReturnsSlices: FaultyEngine {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] {
    try await base.readAllData().map { (Data([1, 2, 3]) + $0).dropFirst(3) }
  }
}

/// Shares the memory of its values with callers, overwrites it in place, and fills it when the engine is released.
final class GivesItsMemoryAway: FaultyEngine {
  let base: ReferenceEngine
  /// Never freed, so that callers can still read it.
  private struct Page: @unchecked Sendable { let bytes: UnsafeMutableRawBufferPointer }
  private let pages = MutexProtected<[CacheKey: Page]>([:])
  /// Whether it does so in bodies, and only there.
  private let isInBodies: Bool

  init(base: ReferenceEngine, inBodies isInBodies: Bool = false) {
    (self.base, self.isInBodies) = (base, isInBodies)
  }
  deinit {
    for page in pages.withLock({ $0 }).values { page.bytes.initializeMemory(as: UInt8.self, repeating: 0xDD) }
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    pages.withLock { pages in
      // Small values are not shared, because concurrent tasks use them.
      guard (400..<400_000).contains(data.count) else { return pages[key] = nil }
      if pages[key]?.bytes.count != data.count {
        pages[key] = Page(bytes: .allocate(byteCount: data.count, alignment: 8))
      }
      pages[key]?.bytes.copyBytes(from: data)
    }
  }
  func read(key: CacheKey) async throws -> Data? {
    let value = try await base.read(key: key)
    return isInBodies ? value : value.map { ownMemory(of: key, $0) }
  }
  private func ownMemory(of key: CacheKey, _ value: Data) -> Data {
    pages.withLock { pages in
      guard let bytes = pages[key]?.bytes, bytes.count == value.count, let start = bytes.baseAddress else {
        return value
      }
      return Data(bytesNoCopy: start, count: bytes.count, deallocator: .none)
    }
  }
  private final class SharedMemoryTransaction: ForwardingTransaction {
    let lend: (CacheKey, Data) -> Data
    init(_ base: any StorageTransaction, lend: @escaping (CacheKey, Data) -> Data) {
      self.lend = lend
      super.init(base)
    }
    override func read(key: CacheKey) throws -> Data? { try base.read(key: key).map { lend(key, $0) } }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    if !isInBodies { return try await base.withTransaction(body) }
    return try await base.withTransaction { [self] in try body(SharedMemoryTransaction($0, lend: ownMemory)) }
  }
}

/// Keeps the values of single writes in pages, and returns pointers into them from scans.
final class LendsMemoryToScans: InterceptingEngine {
  let base: ReferenceEngine
  /// Never freed, so that callers can still use it.
  private struct Page: @unchecked Sendable { let bytes: UnsafeMutableRawBufferPointer }
  private let pages = MutexProtected<[CacheKey: Page]>([:])
  init(base: ReferenceEngine) { self.base = base }

  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if isChange { pages.withLock { $0 = [:] } }
    return try await work()
  }
  func write(_ data: Data, key: CacheKey) async throws {
    pages.withLock { $0 = [:] }
    try await base.write(data, key: key)
    // Small values are not shared, because concurrent tasks use them.
    guard (400..<400_000).contains(data.count) else { return }
    let page = Page(bytes: .allocate(byteCount: data.count, alignment: 8))
    page.bytes.copyBytes(from: data)
    pages.withLock { $0[key] = page }
  }
  func read(key: CacheKey) async throws -> Data? {
    guard let value = try await base.read(key: key) else { return nil }
    return pages.withLock { $0[key].map { Data($0.bytes) } } ?? value
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let pages = pages.withLock { $0 }
    return try await base.scan(range, limit: limit).map { key, data in
      guard let bytes = pages[key]?.bytes, let start = bytes.baseAddress else { return (key, data) }
      return (key, Data(bytesNoCopy: start, count: bytes.count, deallocator: .none))
    }
  }
}
