import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

/// JSON with a hook before each decoding.
private struct InterruptedCodec: Codec {
  let interrupt: @Sendable () -> Void

  func encode(_ value: some Encodable) throws -> Data { try JSONCodec().encode(value) }
  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    interrupt()
    return try JSONCodec().decode(type, from: data)
  }
}

/// Calls a hook when the last reference is released.
private final class DeinitHookValue: Codable, Sendable {
  static let whenGone = MutexProtected<(@Sendable () -> Void)?>(nil)

  let number: Int
  init(_ number: Int) { self.number = number }
  deinit { Self.whenGone.withLock { $0 }?() }
}

/// Foreign code that runs during a read or an operation.
@Suite(.timeLimit(.minutes(60))) struct StoredValueReentranceTests {
  private let defaults = TemporaryDefaults()

  /// Calls a closure once, at the next request.
  private final class Once: Sendable {
    private let action = MutexProtected<(@Sendable () -> Void)?>(nil)

    func set(_ action: @escaping @Sendable () -> Void) { self.action.withLock { $0 = action } }

    func callAsFunction() {
      let action = action.withLock { action in
        defer { action = nil }
        return action
      }
      action?()
    }
  }

  @Test("Decoding a value may read the same value")
  func lookWhileDecoding() throws {
    let interrupt = Once()
    let storage = try defaults.open()
    let value = StoredValue(
      wrappedValue: 0, key: "number", storage: storage, codec: InterruptedCodec { interrupt() })
    let changes = ChangeCounter { _ = value.wrappedValue }
    let seen = MutexProtected<Int?>(nil)
    interrupt.set {
      let number = value.wrappedValue
      seen.withLock { $0 = number }
    }
    try value.set(1)
    #expect(seen.withLock { $0 } == 1)
    #expect(value.wrappedValue == 1)
    #expect(changes.count == 1)
  }

  @Test(
    "A value stored while an older one is decoded is kept, and streams yield each once and in order"
  )
  func changeWhileDecoding() async throws {
    let interrupt = Once()
    let storage = try defaults.open()
    let value = StoredValue(
      wrappedValue: 0, key: "number", storage: storage, codec: InterruptedCodec { interrupt() })
    let stream = value.values
    interrupt.set { #expect(throws: Never.self) { try value.set(2) } }
    try value.set(1)
    #expect(value.wrappedValue == 2)
    try value.set(3)
    #expect(await stream.prefix(3).reduce(into: []) { $0.append($1) } == [0, 2, 3])
  }

  @Test("Decoding may read a value that is stored in an engine")
  func lookWhileDecodingAsynchronously() async throws {
    let interrupt = Once()
    let value = AsyncStoredValue(
      wrappedValue: 0, storage: MemoryStorageEngine(), key: "number", codec: InterruptedCodec { interrupt() })
    try await value.valueHasLoaded()
    let seen = MutexProtected<Int?>(nil)
    interrupt.set {
      let number = value.wrappedValue
      seen.withLock { $0 = number }
    }
    try await value.set(1)
    #expect(seen.withLock { $0 } == 0)
    #expect(value.wrappedValue == 1)
  }

  @Test("The deinit of a replaced value may read the new one")
  func lookWhenGone() throws {
    let value = StoredValue(wrappedValue: DeinitHookValue(0), key: "value", storage: try defaults.open())
    try value.set(DeinitHookValue(1))
    #expect(value.wrappedValue.number == 1)
    let seen = MutexProtected<[Int]>([])
    DeinitHookValue.whenGone.withLock {
      $0 = {
        let number = value.wrappedValue.number
        seen.withLock { $0.append(number) }
      }
    }
    try value.set(DeinitHookValue(2))
    // By now the argument has been released too.
    let last = DeinitHookValue.whenGone.withLock { action in
      defer { action = nil }
      return action
    }
    withExtendedLifetime(last) { #expect(seen.withLock { $0 }.contains(2)) }
  }
}
