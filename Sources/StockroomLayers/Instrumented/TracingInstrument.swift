#if Instrumentation
  import StockroomCore
  public import Tracing

  /// Records each call as a span, with swift-distributed-tracing and the attributes of OpenTelemetry's semantic conventions for
  /// databases.
  ///
  /// The span is of the kind `client`, is named after the operation and the engine (`read songs`), has the context of the caller's
  /// task as its parent, and has the times of the call. It is created after the call has ended, so no other span can be its child.
  ///
  /// | attribute | value |
  /// |---|---|
  /// | `db.system.name` | the ``init(system:tracer:)`` parameter |
  /// | `db.namespace` | ``StorageCall/engine`` |
  /// | `db.operation.name` | ``StorageCall/operation`` |
  /// | `db.operation.batch.size` | ``StorageCall/entriesRequested``, if it is 2 or more and the call is not a transaction |
  /// | `db.response.returned_rows` | ``StorageCall/entriesReturned``, if the call reads and has not thrown |
  /// | `stockroom.bytes_read`, `stockroom.bytes_written` | ``StorageCall/bytesRead`` and ``StorageCall/bytesWritten``, unless they are 0 |
  /// | `error.type` | ``StorageCall/Outcome/errorName`` of a call that threw; the status of the span is `error` then |
  ///
  /// An error's message is not recorded, since it may name a key.
  public struct TracingInstrument: StorageInstrument {
    private let system: String
    private let tracer: (any Tracer)?

    /// Creates an instrument that makes spans with the tracer.
    ///
    /// - Parameters:
    ///   - system: The value of `db.system.name`. The conventions define `sqlite` and `postgresql`; for other engines use their own
    ///     name, such as `lmdb`.
    ///   - tracer: The tracer. Nil for the one that `InstrumentationSystem` has at the time of each call.
    public init(system: String, tracer: (any Tracer)? = nil) { (self.system, self.tracer) = (system, tracer) }

    /// Makes the call's span.
    public func record(_ call: StorageCall) {
      let tracer = tracer ?? InstrumentationSystem.tracer
      let end = DefaultTracerClock.now
      let span = tracer.startSpan(
        "\(call.operation) \(call.engine)", context: .current ?? .topLevel, ofKind: .client,
        at: end.before(call.duration), function: #function, file: #fileID, line: #line)
      if span.isRecording {
        span.updateAttributes { describe(call, in: &$0) }
        if call.outcome.errorName != nil { span.setStatus(SpanStatus(code: .error)) }
      }
      span.end(at: end)
    }

    private func describe(_ call: StorageCall, in attributes: inout SpanAttributes) {
      attributes["db.system.name"] = system
      attributes["db.namespace"] = call.engine
      attributes["db.operation.name"] = call.operation.rawValue
      if call.operation != .withTransaction && call.entriesRequested > 1 {
        attributes["db.operation.batch.size"] = call.entriesRequested
      }
      if call.bytesRead > 0 { attributes["stockroom.bytes_read"] = call.bytesRead }
      if call.bytesWritten > 0 { attributes["stockroom.bytes_written"] = call.bytesWritten }
      if let error = call.outcome.errorName {
        attributes["error.type"] = error
      } else if call.operation.returnsEntries {
        attributes["db.response.returned_rows"] = call.entriesReturned
      }
    }
  }

  extension DefaultTracerClock.Timestamp {
    fileprivate func before(_ duration: Duration) -> Self {
      let nanoseconds = UInt64(clamping: duration.nanoseconds)
      return Self(
        nanosecondsSinceEpoch: nanosecondsSinceEpoch - min(nanoseconds, nanosecondsSinceEpoch))
    }
  }

  extension StorageCall.Operation {
    fileprivate var returnsEntries: Bool {
      switch self {
      case .read, .readMany, .readDataAndKeys, .readAllData, .readAllDataAndKeys, .keyExists, .keysExist,
        .allKeys,
        .createdAt, .updatedAt, .readAllEntries, .readEntries, .scan, .withTransaction:
        true
      case .write, .writeMany, .writeEntries, .apply, .remove, .removeMany, .removeAllData, .keyCount,
        .changes, .verify,
        .close:
        false
      }
    }
  }
#endif
