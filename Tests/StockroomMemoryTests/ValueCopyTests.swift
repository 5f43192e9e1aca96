import Foundation
import StockroomCore
import StockroomMemory
import Testing

@Suite("Values are copied on their way in")
struct ValueCopyTests {
  /// The ways of writing one value.
  enum WriteMethod: CaseIterable {
    case single, batch, operations, transaction

    func write(_ data: Data, key: CacheKey, to engine: MemoryStorageEngine) async throws {
      switch self {
      case .single: try await engine.write(data, key: key)
      case .batch: try await engine.write([(key, data)])
      case .operations:
        // More operations than are applied without a pause.
        try await engine.apply((0..<100).map { .remove(key: CacheKey("\($0)")) } + [.write(data, key: key)])
      case .transaction: try await engine.withTransaction { try $0.write(data, key: key) }
      }
    }
  }

  let engine = MemoryStorageEngine()
  let key = CacheKey(verbatim: "key")

  @Test("A slice is stored without the rest of its buffer", arguments: WriteMethod.allCases)
  func slices(_ way: WriteMethod) async throws {
    func writeSlice(_ range: Range<Int>, _ isFreed: Flag) async throws {
      let bytes = UnsafeMutableRawPointer.allocate(byteCount: 1000, alignment: 1)
      bytes.initializeMemory(as: UInt8.self, repeating: 7, count: 1000)
      let whole = Data(
        bytesNoCopy: bytes, count: 1000,
        deallocator: .custom { bytes, _ in
          bytes.deallocate()
          isFreed.set()
        })
      try await way.write(whole[range], key: key, to: engine)
    }
    for range in [0..<20, 50..<70] {
      let isFreed = Flag()
      try await writeSlice(range, isFreed)
      #expect(isFreed.isSet, "\(range)")
      let data = try #require(try await engine.read(key: key))
      #expect(data.startIndex == 0)
      #expect(data == Data(repeating: 7, count: 20))
    }
  }

  @Test("A buffer that is changed after it was written changes no value", arguments: WriteMethod.allCases)
  func foreignBuffers(_ way: WriteMethod) async throws {
    let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: 100, alignment: 1)
    defer { bytes.deallocate() }
    bytes.initializeMemory(as: UInt8.self, repeating: 1)
    let foreign = Data(bytesNoCopy: try #require(bytes.baseAddress), count: 100, deallocator: .none)
    try await way.write(foreign, key: key, to: engine)
    bytes.initializeMemory(as: UInt8.self, repeating: 2)
    #expect(try await engine.read(key: key) == Data(repeating: 1, count: 100))
  }

  @Test("A buffer that a body changes after it has written it changes no value")
  func foreignBuffersInBodies() async throws {
    let seen = try await engine.withTransaction { [key] transaction in
      let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: 100, alignment: 1)
      defer { bytes.deallocate() }
      bytes.initializeMemory(as: UInt8.self, repeating: 1)
      guard let start = bytes.baseAddress else { return Data?.none }
      try transaction.write(Data(bytesNoCopy: start, count: 100, deallocator: .none), key: key)
      bytes.initializeMemory(as: UInt8.self, repeating: 2)
      return try transaction.read(key: key)
    }
    #expect(seen == Data(repeating: 1, count: 100))
    #expect(try await engine.read(key: key) == Data(repeating: 1, count: 100))
  }
}
