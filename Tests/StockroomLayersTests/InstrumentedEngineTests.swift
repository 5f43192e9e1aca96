import Dispatch
import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import TestFixtures
import Testing

@Suite("Instrumented engines")
struct InstrumentedEngineTests {
  private typealias Method = FailingStorageEngine.Call.Method
  private static let keys = ["a", "b", "absent"].map(CacheKey.init(verbatim:))
  private static let (a, b, absent) = (keys[0], keys[1], keys[2])

  private let recorder = CallRecorder()
  private let base = FailingStorageEngine(MemoryStorageEngine())

  private var engine: InstrumentedEngine<FailingStorageEngine> {
    base.instrumented(as: "songs", by: recorder)
  }

  /// A call on an engine that has 3 bytes under one key and 5 under another, with its expected counts.
  struct Case: Sendable, CustomTestStringConvertible {
    let operation: StorageCall.Operation
    let counts: Counts
    let call: @Sendable (any StorageEngine) async throws -> Void

    init(
      _ operation: StorageCall.Operation, _ counts: Counts = Counts(),
      _ call: @escaping @Sendable (any StorageEngine) async throws -> Void
    ) {
      (self.operation, self.counts, self.call) = (operation, counts, call)
    }

    var testDescription: String { operation.rawValue }
  }

  static let cases: [Case] = [
    Case(.write, Counts(requested: 1, written: 4)) { try await $0.write(Data(count: 4), key: a) },
    Case(.writeMany, Counts(requested: 3, written: 7)) {
      try await $0.write([(a, Data(count: 1)), (b, Data(count: 2)), (a, Data(count: 4))])
    },
    Case(.read, Counts(requested: 1, returned: 1, read: 3)) { _ = try await $0.read(key: a) },
    Case(.read, Counts(requested: 1)) { _ = try await $0.read(key: absent) },
    Case(.readMany, Counts(requested: 3, returned: 2, read: 8)) { _ = try await $0.read(keys: keys) },
    Case(.readDataAndKeys, Counts(requested: 4, returned: 3, read: 11)) {
      _ = try await $0.readDataAndKeys(keys: keys + [a])
    },
    Case(.readAllData, Counts(returned: 2, read: 8)) { _ = try await $0.readAllData() },
    Case(.readAllDataAndKeys, Counts(returned: 2, read: 8)) { _ = try await $0.readAllDataAndKeys() },
    Case(.remove, Counts(requested: 1)) { try await $0.remove(key: a) },
    Case(.removeMany, Counts(requested: 3)) { try await $0.remove(keys: keys) },
    Case(.removeAllData) { try await $0.removeAllData() },
    Case(.keyExists, Counts(requested: 1, returned: 1)) { _ = try await $0.keyExists(a) },
    Case(.keyExists, Counts(requested: 1)) { _ = try await $0.keyExists(absent) },
    Case(.keysExist, Counts(requested: 3, returned: 2)) { _ = try await $0.keysExist(keys) },
    Case(.keyCount) { _ = try await $0.keyCount() },
    Case(.allKeys, Counts(returned: 2)) { _ = try await $0.allKeys() },
    Case(.createdAt, Counts(requested: 1, returned: 1)) { _ = try await $0.createdAt(key: a) },
    Case(.createdAt, Counts(requested: 1)) { _ = try await $0.createdAt(key: absent) },
    Case(.updatedAt, Counts(requested: 1, returned: 1)) { _ = try await $0.updatedAt(key: a) },
    Case(.updatedAt, Counts(requested: 1)) { _ = try await $0.updatedAt(key: absent) },
    Case(.readAllEntries, Counts(returned: 2, read: 8)) { _ = try await $0.readAllEntries() },
    Case(.readEntries, Counts(requested: 3, returned: 2, read: 8)) {
      _ = try await $0.readEntries(keys: keys)
    },
    Case(.writeEntries, Counts(requested: 2, written: 5)) {
      try await $0.writeEntries([
        StorageEntry(key: a, data: Data(count: 4), createdAt: .now, updatedAt: .now),
        StorageEntry(key: absent, data: Data(count: 1), createdAt: .now, updatedAt: .now),
      ])
    },
    Case(.apply, Counts(requested: 3, written: 13)) {
      try await $0.apply([
        .write(Data(count: 6), key: a), .remove(key: b), .removeAll, .write(Data(count: 7), key: b),
      ])
    },
    Case(.scan, Counts(returned: 1, read: 3)) { _ = try await $0.scan(.all, limit: 1) },
    Case(.withTransaction, Counts(requested: 9, returned: 8, read: 19, written: 8)) {
      try await $0.withTransaction { transaction in
        _ = try transaction.read(key: a)
        _ = try transaction.read(keys: keys)
        _ = try transaction.keyExists(absent)
        _ = try transaction.keyExists(b)
        _ = try transaction.keyCount()
        _ = try transaction.allKeys()
        _ = try transaction.scan(.all, limit: nil)
        try transaction.write(Data(count: 6), key: a)
        try transaction.writeEntry(
          StorageEntry(key: a, data: Data(count: 2), createdAt: .now, updatedAt: .now))
        try transaction.remove(key: b)
        try transaction.removeAll()
      }
    },
    Case(.changes) { _ = try await $0.changes() },
    Case(.verify) { try await $0.verify() },
    Case(.close) { try await $0.close() },
  ]

  @Test("A call is recorded once, with its counts", arguments: cases)
  func counts(_ test: Case) async throws {
    try await base.write([(Self.a, Data(count: 3)), (Self.b, Data(count: 5))])
    try await test.call(engine)
    let calls = recorder.calls
    let call = try #require(calls.first)
    #expect(calls.count == 1)
    #expect(call.operation == test.operation)
    #expect(Counts(call) == test.counts)
    #expect(call.engine == "songs")
    #expect(call.outcome.errorName == nil)
  }

  @Test("The duration of a call is the time from its start to its end")
  func duration() async throws {
    let before = DispatchTime.now()
    try await engine.withTransaction { _ in
      let end = DispatchTime.now() + .milliseconds(2)
      while DispatchTime.now() < end {}
    }
    let longest = DispatchTime.now().uptimeNanoseconds - before.uptimeNanoseconds
    let duration = try #require(recorder.calls.first).duration
    #expect(duration >= .milliseconds(2) && duration <= .nanoseconds(longest))
  }

  @Test("Every requirement is forwarded unchanged and recorded")
  func isComplete() async throws {
    try await callEverything(engine)
    #expect(base.calls.map(\.method) == Method.allCases)
    #expect(recorder.calls.map(\.operation) == StorageCall.Operation.allCases)
    #expect(StorageCall.Operation.allCases.map(\.rawValue) == Method.allCases.map { "\($0)" })
    #expect(Set(Self.cases.map(\.operation)) == Set(StorageCall.Operation.allCases))
    #expect(engine.capabilities == base.capabilities)
  }

  @Test("An error is recorded by its code and rethrown unchanged")
  func errors() async throws {
    for code in [StorageError.Code.diskFull, .closed, .init("ofAnotherEngine")] {
      base.failEveryCall(with: StorageError(code, "The disk is full.")) { _ in true }
      let error = await #expect(throws: StorageError.self) {
        try await callEverything(engine, goOnAfterErrors: true)
      }
      #expect(error?.code == code)
      let calls = recorder.take()
      #expect(calls.map(\.operation) == StorageCall.Operation.allCases)
      #expect(calls.allSatisfy { $0.outcome.errorName == code.name && $0.entriesReturned == 0 })
      // The bytes that the call tried to write.
      #expect(calls.reduce(0) { $0 + $1.bytesWritten } == 15)
      base.clearFaults()
    }
  }

  private final class OwnError: Error {}

  @Test("Errors that are not StorageErrors are recorded by their type")
  func otherErrors() async throws {
    let error = OwnError()
    base.failCall(with: error)
    await #expect { try await engine.read(key: Self.a) } throws: { $0 as? OwnError === error }
    await #expect {
      try await engine.withTransaction { transaction in
        try transaction.write(Data(count: 9), key: Self.a)
        throw error
      }
    } throws: {
      $0 as? OwnError === error
    }
    #expect(recorder.calls.map(\.outcome.errorName) == ["OwnError", "OwnError"])
    #expect(recorder.calls.map(\.bytesWritten) == [0, 9])
    #expect(try await base.keyCount() == 0)
  }

  @Test("A cancelled call is recorded as cancelled")
  func cancellation() async throws {
    base.hold()
    let task = Task { [engine] in try await engine.write(Data(count: 1), key: Self.a) }
    try await base.waitForHeldCalls()
    #expect(recorder.calls.isEmpty)
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(recorder.calls.map(\.outcome.errorName) == ["cancelled"])
    guard case .cancelled? = recorder.calls.first?.outcome else {
      Issue.record("\(recorder.calls)")
      return
    }
  }

  /// Runs the body of a transaction twice, like an engine that retries.
  private struct RetryingLayer<Base: StorageEngine>: StorageLayer {
    let base: Base
    func withTransaction<Result: Sendable>(
      _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
    ) async throws -> Result {
      try await base.withTransaction {
        _ = try body($0)
        return try body($0)
      }
    }
  }

  @Test("For a transaction that runs twice, the last run is counted")
  func runs() async throws {
    let engine = RetryingLayer(base: base).instrumented(by: recorder)
    try await engine.withTransaction { transaction in
      _ = try transaction.read(key: Self.a)
      try transaction.write(Data(count: 7), key: Self.a)
    }
    // The second run reads the writes of the first.
    #expect(
      recorder.calls.map(Counts.init) == [Counts(requested: 2, returned: 1, read: 7, written: 7)])
  }

  @Test(
    "Reads of a body count the bytes of the engine, and a call that fails in the body is not counted")
  func transactions() async throws {
    try await engine.write(Data("one".utf8), key: Self.a)
    let value = try await engine.withTransaction { transaction in
      #expect(throws: StorageError.self) { try transaction.write(Data(), key: CacheKey(verbatim: "")) }
      return try transaction.read(key: Self.a)
    }
    #expect(value == Data("one".utf8))
    #expect(try await engine.increment(Self.b, by: 5) == 5)
    #expect(recorder.calls.map(\.operation) == [.write, .withTransaction, .withTransaction])
    #expect(
      recorder.calls.map(Counts.init) == [
        Counts(requested: 1, written: 3), Counts(requested: 1, returned: 1, read: 3),
        Counts(requested: 2, written: 1),
      ])
  }

  @Test("A recorded call contains no keys, values or error messages")
  func privacy() async throws {
    let secrets = ["SecretKey", "SecretValue"]
    let key = CacheKey(verbatim: secrets[0])
    let value = Data(secrets[1].utf8)
    let long = CacheKey(verbatim: String(repeating: secrets[0], count: 100))
    try await engine.write(value, key: key)
    try await engine.apply([.write(value, key: key)])
    _ = try await engine.read(key: key)
    _ = try await engine.scan(.prefix(secrets[0]), limit: nil)
    _ = try await engine.withTransaction { try $0.read(key: key) }
    await #expect(throws: StorageError.self) { try await engine.write(value, key: long) }
    base.failCall(with: StorageError(.io, "The value of \(key) is \(secrets[1])."))
    await #expect(throws: StorageError.self) { try await engine.read(key: key) }
    #expect(recorder.calls.count == 7)
    for call in recorder.calls {
      var text = "\(call)"
      dump(call, to: &text)
      for secret in secrets { #expect(!text.contains(secret)) }
    }
  }

  @TaskLocal private static var caller: String?

  /// Records a task-local value of the caller.
  private final class CallerRecorder: StorageInstrument {
    let callers = MutexProtected<[String?]>([])
    func record(_ call: StorageCall) { callers.withLock { $0.append(InstrumentedEngineTests.caller) } }
  }

  @Test("Every instrument records calls in the caller's task")
  func tasks() async throws {
    let second = CallerRecorder()
    let engine = base.instrumented(by: recorder, second, recorder)
    try await Self.$caller.withValue("caller") { try await callEverything(engine) }
    let count = StorageCall.Operation.allCases.count
    #expect(second.callers.withLock { $0 } == Array(repeating: "caller", count: count))
    #expect(recorder.calls.count == 2 * count)
  }

  @Test("An engine without a name is named after its type")
  func names() async throws {
    let memory = MemoryStorageEngine()
    #expect(memory.instrumented(by: recorder).name == "MemoryStorageEngine")
    #expect(memory.compressed().instrumented(by: recorder).name == "CompressedEngine<MemoryStorageEngine>")
    #expect(memory.instrumented(as: "songs", by: recorder).name == "songs")
  }

  @Test("All calls of concurrent tasks are recorded")
  func concurrency() async throws {
    try await withThrowingTaskGroup { group in
      for task in 0..<8 {
        group.addTask { [engine] in
          for round in 0..<50 {
            try await engine.write(Data(count: round), key: CacheKey(verbatim: "\(task)/\(round)"))
            try await engine.withTransaction { try $0.write(Data(count: round), key: Self.a) }
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(recorder.calls.count == 800)
    let bytes = recorder.calls.reduce(0) { $0 + $1.bytesWritten }
    #expect(bytes == 16 * (0..<50).reduce(0, +))
  }

  @Test("Only slow calls are logged")
  func slowCalls() {
    let slow = CallRecorder()
    let log = SlowCallLog(over: .milliseconds(10)) { slow.record($0) }
    for milliseconds in [0, 9, 10, 11] {
      log.record(StorageCall(.read, engine: "songs", duration: .milliseconds(milliseconds)))
    }
    #expect(slow.calls.map(\.duration) == [.milliseconds(10), .milliseconds(11)])
  }
}
