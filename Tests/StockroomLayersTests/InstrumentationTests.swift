#if Instrumentation
  import CoreMetrics
  import Foundation
  import InMemoryTracing
  import MetricsTestKit
  import StockroomCore
  import StockroomLayers
  import StockroomMemory
  import StockroomTestSupport
  import TestFixtures
  import Testing
  import Tracing

  @Suite("Metrics of calls")
  struct MetricsInstrumentTests {
    private let metrics = TestMetrics()
    private let base = FailingStorageEngine(MemoryStorageEngine())
    private let key = CacheKey(verbatim: "SecretKey")

    private func total(_ name: String, _ operation: StorageCall.Operation) throws -> Int64 {
      try metrics.expectCounter(
        "stockroom.\(name)", [("engine", "songs"), ("operation", operation.rawValue)]
      ).totalValue
    }

    private func durations(_ operation: StorageCall.Operation) throws -> [Int64] {
      try metrics.expectTimer(
        "stockroom.call.duration", [("engine", "songs"), ("operation", operation.rawValue)]
      ).values
    }

    private func errors(_ operation: StorageCall.Operation, _ code: String) throws -> Int64 {
      try metrics.expectCounter(
        "stockroom.errors", [("engine", "songs"), ("operation", operation.rawValue), ("code", code)]
      ).totalValue
    }

    @Test("Calls are timed, and entries and bytes counted, by engine and operation")
    func counts() async throws {
      let recorder = CallRecorder()
      let instrument = MetricsInstrument(factory: metrics)
      let songs = base.instrumented(as: "songs", by: instrument, recorder)
      let other = MemoryStorageEngine().instrumented(as: "other", by: instrument)
      try await songs.write(Data(count: 3), key: key)
      try await songs.write(Data(count: 4), key: key)
      try await other.write(Data(count: 100), key: key)
      _ = try await songs.read(keys: [key, CacheKey(verbatim: "absent")])
      let recorded = recorder.calls.filter { $0.operation == .write }.map(\.duration)
      #expect(try durations(.write).map { Duration.nanoseconds($0) } == recorded)
      #expect(try durations(.readMany).count == 1)
      #expect(try total("entries.requested", .write) == 2)
      #expect(try total("entries.returned", .write) == 0)
      #expect(try total("bytes.written", .write) == 7)
      #expect(try total("bytes.read", .write) == 0)
      #expect(try total("entries.requested", .readMany) == 2)
      #expect(try total("entries.returned", .readMany) == 1)
      #expect(try total("bytes.read", .readMany) == 4)
      #expect(metrics.timers.count == 3)
      #expect(metrics.counters.count == 12)
    }

    @Test("Failed calls are timed and counted by code, and their entries and bytes are not counted")
    func failures() async throws {
      let songs = base.instrumented(as: "songs", by: MetricsInstrument(factory: metrics))
      for code in [StorageError.Code.diskFull, .io, .diskFull] {
        base.failCall(with: StorageError(code, "SecretKey"))
        await #expect(throws: StorageError.self) { try await songs.write(Data(count: 3), key: key) }
      }
      base.failCall(with: CancellationError())
      await #expect(throws: CancellationError.self) { try await songs.write(Data(count: 3), key: key) }
      #expect(try errors(.write, "diskFull") == 2)
      #expect(try errors(.write, "io") == 1)
      #expect(try errors(.write, "cancelled") == 1)
      #expect(try durations(.write).count == 4)
      #expect(try total("entries.requested", .write) == 0)
      #expect(try total("bytes.written", .write) == 0)
      #expect(!"\(metrics)".contains("Secret"))
    }

    @Test("Every operation has its metrics, even with many concurrent tasks")
    func concurrency() async throws {
      let instrument = MetricsInstrument(factory: metrics)
      try await withThrowingTaskGroup { group in
        for _ in 0..<8 {
          group.addTask {
            for _ in 0..<25 {
              try await callEverything(MemoryStorageEngine().instrumented(as: "songs", by: instrument))
            }
          }
        }
        try await group.waitForAll()
      }
      for operation in StorageCall.Operation.allCases { #expect(try durations(operation).count == 200) }
      #expect(try total("bytes.written", .writeMany) == 1_000)
      #expect(metrics.timers.count == StorageCall.Operation.allCases.count)
    }
  }

  @Suite("Spans of calls")
  struct TracingInstrumentTests {
    private let tracer = InMemoryTracer()
    private let base = FailingStorageEngine(MemoryStorageEngine())
    private let keys = ["SecretKey1", "SecretKey2"].map(CacheKey.init(verbatim:))

    private var engine: InstrumentedEngine<FailingStorageEngine> {
      base.instrumented(as: "songs", by: TracingInstrument(system: "memory", tracer: tracer))
    }

    private func attributes(_ span: FinishedInMemorySpan) -> [String: SpanAttribute] {
      var attributes: [String: SpanAttribute] = [:]
      span.attributes.forEach { attributes[$0] = $1 }
      return attributes
    }

    private func common(_ operation: StorageCall.Operation) -> [String: SpanAttribute] {
      [
        "db.system.name": "memory", "db.namespace": "songs",
        "db.operation.name": .string(operation.rawValue),
      ]
    }

    @Test("A call is one span, with the attributes of the database conventions and no others")
    func spans() async throws {
      let value = Data("SecretValue".utf8)
      try await engine.write(value, key: keys[0])
      try await engine.apply([.write(value, key: keys[0]), .remove(key: keys[1])])
      _ = try await engine.read(key: keys[0])
      _ = try await engine.read(keys: keys)
      try await engine.withTransaction { [keys] in for key in keys { try $0.remove(key: key) } }
      let more: [[String: SpanAttribute]] = [
        ["stockroom.bytes_written": .int64(11)],
        ["stockroom.bytes_written": .int64(11), "db.operation.batch.size": .int64(2)],
        ["stockroom.bytes_read": .int64(11), "db.response.returned_rows": .int64(1)],
        [
          "stockroom.bytes_read": .int64(11), "db.response.returned_rows": .int64(1),
          "db.operation.batch.size": .int64(2),
        ],
        ["db.response.returned_rows": .int64(0)],
      ]
      let operations: [StorageCall.Operation] = [.write, .apply, .read, .readMany, .withTransaction]
      let spans = tracer.finishedSpans
      #expect(spans.map(\.operationName) == operations.map { "\($0) songs" })
      #expect(
        spans.map(attributes) == zip(operations, more).map { common($0).merging($1) { $1 } })
      for span in spans {
        #expect(span.kind == .client)
        #expect(span.status == nil)
        #expect(span.errors.isEmpty && span.events.isEmpty && span.links.isEmpty)
      }
      #expect(tracer.activeSpans.isEmpty)
    }

    @Test("The span of a failed call has the status error and the error's type, but no message")
    func failures() async throws {
      base.failCall(with: StorageError(.diskFull, "SecretValue"))
      await #expect(throws: StorageError.self) { try await engine.write(Data(count: 3), key: keys[0]) }
      base.failCall(with: CancellationError())
      await #expect(throws: CancellationError.self) { try await engine.read(key: keys[0]) }
      let spans = tracer.finishedSpans
      #expect(
        spans.map(attributes) == [
          common(.write).merging(["error.type": "diskFull", "stockroom.bytes_written": .int64(3)]) { $1 },
          common(.read).merging(["error.type": "cancelled"]) { $1 },
        ])
      for span in spans {
        #expect(span.status == SpanStatus(code: .error))
        #expect(span.errors.isEmpty && span.events.isEmpty)
      }
    }

    @Test("A span has the start and end time of its call")
    func times() async throws {
      let recorder = CallRecorder()
      let songs = base.instrumented(
        as: "songs", by: recorder, TracingInstrument(system: "memory", tracer: tracer))
      try await callEverything(songs)
      let now = DefaultTracerClock.now.nanosecondsSinceEpoch
      let spans = tracer.finishedSpans
      #expect(spans.map(\.operationName) == StorageCall.Operation.allCases.map { "\($0) songs" })
      for (span, call) in zip(spans, recorder.calls) {
        let (start, end) = (span.startInstant.nanosecondsSinceEpoch, span.endInstant.nanosecondsSinceEpoch)
        #expect(Duration.nanoseconds(end - start) == call.duration)
        // The system clock may be adjusted meanwhile.
        #expect(end <= now + 60_000_000_000 && end >= now - 600_000_000_000)
      }
    }

    @Test("Times before 1970 are clamped to 1970")
    func clampedTimes() {
      TracingInstrument(system: "memory", tracer: tracer).record(
        StorageCall(.read, engine: "songs", duration: .seconds(1 << 40)))
      #expect(tracer.finishedSpans.map(\.startInstant.nanosecondsSinceEpoch) == [0])
    }

    @Test("The parent of a call's span is the span of the calling task, even with concurrent calls")
    func parents() async throws {
      try await engine.removeAllData()
      #expect(tracer.popFinishedSpans().map(\.parentSpanID) == [nil])
      try await withThrowingTaskGroup { group in
        for number in 0..<16 {
          group.addTask { [tracer, engine] in
            try await tracer.withSpan("task \(number)") { _ in
              for _ in 0..<25 {
                try await engine.write(Data(count: 1), key: CacheKey(verbatim: "\(number)"))
                _ = try await engine.readAllEntries()
              }
            }
          }
        }
        try await group.waitForAll()
      }
      let spans = tracer.finishedSpans
      let tasks = spans.filter { $0.operationName.hasPrefix("task") }
      #expect(tasks.count == 16)
      for task in tasks {
        let children = spans.filter { $0.parentSpanID == task.spanID }
        #expect(children.count == 50)
        #expect(children.allSatisfy { $0.traceID == task.traceID })
      }
    }

    @Test("Without a tracer of its own, the instrument uses the system's current tracer when a call ends")
    func systemTracer() async throws {
      let songs = base.instrumented(as: "songs", by: TracingInstrument(system: "memory"))
      _ = try await songs.keyCount()
      _ = try await withTracer(tracer) { try await songs.allKeys() }
      _ = try await songs.keyCount()
      #expect(tracer.finishedSpans.map(\.operationName) == ["allKeys songs"])
    }
  }
#endif
