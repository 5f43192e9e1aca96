/// Records the calls of engines: counts them, times them, logs them.
///
/// ```swift
/// struct SlowestCall: StorageInstrument {
///   func record(_ call: StorageCall) { if call.duration > .seconds(1) { print(call) } }
/// }
/// ```
///
/// One instrument may record the calls of any number of engines.
public protocol StorageInstrument: Sendable {
  /// Records a call that has ended.
  ///
  /// Called once for each call, in the task of the caller, before the caller receives the result. So it must return quickly. Calls
  /// from several tasks may be recorded concurrently.
  func record(_ call: StorageCall)
}

/// Calls a function for every call that takes long.
public struct SlowCallLog: StorageInstrument {
  private let threshold: Duration
  private let log: @Sendable (StorageCall) -> Void

  /// Logs calls that take at least as long as the threshold.
  ///
  /// - Parameter log: The function that is called with such a call. It must return quickly.
  public init(over threshold: Duration, _ log: @escaping @Sendable (StorageCall) -> Void) {
    (self.threshold, self.log) = (threshold, log)
  }

  /// Logs the call if it took at least as long as the threshold.
  public func record(_ call: StorageCall) {
    if call.duration >= threshold { log(call) }
  }
}

/// Several instruments as one.
struct InstrumentGroup: StorageInstrument {
  let instruments: [any StorageInstrument]

  func record(_ call: StorageCall) {
    for instrument in instruments { instrument.record(call) }
  }
}
