#if Instrumentation
  public import CoreMetrics
  import StockroomCore

  /// Records calls with swift-metrics: their number and duration, how much they read and write, and which errors they throw.
  ///
  /// | metric | kind | labels | what is recorded |
  /// |---|---|---|---|
  /// | `stockroom.call.duration` | timer | `engine`, `operation` | every call |
  /// | `stockroom.entries.requested` | counter | `engine`, `operation` | ``StorageCall/entriesRequested`` |
  /// | `stockroom.entries.returned` | counter | `engine`, `operation` | ``StorageCall/entriesReturned`` |
  /// | `stockroom.bytes.read` | counter | `engine`, `operation` | ``StorageCall/bytesRead`` |
  /// | `stockroom.bytes.written` | counter | `engine`, `operation` | ``StorageCall/bytesWritten`` |
  /// | `stockroom.errors` | counter | `engine`, `operation`, `code` | calls that throw |
  ///
  /// A call that throws is recorded in the timer and in the error counter only. `code` is ``StorageCall/Outcome/errorName``. The
  /// metrics of an operation of an engine are created when it is first called, and each error counter when its code first occurs.
  ///
  /// Costs a dictionary lookup under a mutex for each call, and the cost of the metrics.
  public final class MetricsInstrument: StorageInstrument {
    private let factory: any MetricsFactory
    private let metrics = MutexProtected<[OperationMetrics.Key: OperationMetrics]>([:])

    /// Creates an instrument whose metrics come from the factory. Bootstrap `MetricsSystem` before you use its factory.
    public init(factory: any MetricsFactory = MetricsSystem.factory) { self.factory = factory }

    /// Records the call.
    public func record(_ call: StorageCall) {
      let key = OperationMetrics.Key(engine: call.engine, operation: call.operation)
      let metrics = metrics.withLock { [factory] metrics in
        if let known = metrics[key] { return known }
        let new = OperationMetrics(key, factory)
        metrics[key] = new
        return new
      }
      metrics.record(call, factory)
    }
  }

  /// The metrics of one operation of one engine.
  private final class OperationMetrics: Sendable {
    struct Key: Hashable, Sendable {
      let engine: String
      let operation: StorageCall.Operation

      var labels: [(String, String)] { [("engine", engine), ("operation", operation.rawValue)] }
    }

    private let key: Key
    private let duration: CoreMetrics.Timer
    private let entriesRequested: Counter
    private let entriesReturned: Counter
    private let bytesRead: Counter
    private let bytesWritten: Counter
    private let errors = MutexProtected<[String: Counter]>([:])

    init(_ key: Key, _ factory: any MetricsFactory) {
      func counter(_ name: String) -> Counter {
        Counter(label: "stockroom." + name, dimensions: key.labels, factory: factory)
      }
      self.key = key
      duration = Timer(label: "stockroom.call.duration", dimensions: key.labels, factory: factory)
      entriesRequested = counter("entries.requested")
      entriesReturned = counter("entries.returned")
      bytesRead = counter("bytes.read")
      bytesWritten = counter("bytes.written")
    }

    func record(_ call: StorageCall, _ factory: any MetricsFactory) {
      duration.recordNanoseconds(call.duration.nanoseconds)
      if let code = call.outcome.errorName {
        errorCounter(code, factory).increment()
        return
      }
      add(call.entriesRequested, to: entriesRequested)
      add(call.entriesReturned, to: entriesReturned)
      add(call.bytesRead, to: bytesRead)
      add(call.bytesWritten, to: bytesWritten)
    }

    private func add(_ amount: Int, to counter: Counter) { if amount > 0 { counter.increment(by: amount) } }

    private func errorCounter(_ code: String, _ factory: any MetricsFactory) -> Counter {
      errors.withLock { errors in
        if let known = errors[code] { return known }
        let new = Counter(
          label: "stockroom.errors", dimensions: key.labels + [("code", code)], factory: factory)
        errors[code] = new
        return new
      }
    }
  }
#endif
