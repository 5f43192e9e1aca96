/// Records the latencies of consecutive calls.
public struct LatencyRecorder: Sendable {
  private let callsPerSample: Int
  private var calls = 0
  private var last = ContinuousClock.now
  private(set) var excluded = Duration.zero
  private(set) var excludedProcessorSeconds = 0.0
  private var histogram = LatencyHistogram()

  init(callsPerSample: Int) { self.callsPerSample = max(1, callsPerSample) }

  /// Starts timing the next call.
  public mutating func start() { last = .now }

  /// Records the time of a call and starts timing the next one. Costs about 30 ns, or less if several calls are timed
  /// together.
  public mutating func record() {
    calls += 1
    if calls == callsPerSample { addSample() }
  }

  /// Runs work between two calls without measuring it, such as waiting or comparing results.
  public mutating func exclude<Result>(_ work: () async throws -> Result) async rethrows -> Result {
    if calls > 0 { addSample() }
    let (start, processorTime) = (ContinuousClock.now, ResourceUsage.processorTime)
    let result = try await work()
    excludedProcessorSeconds += ResourceUsage.processorTime - processorTime
    last = .now
    excluded += last - start
    return result
  }

  private mutating func addSample() {
    let now = ContinuousClock.now
    // Rounded up, so that no call takes 0 ns.
    let mean = ((now - last).inNanoseconds + UInt64(calls) - 1) / UInt64(calls)
    histogram.add(nanoseconds: mean, count: UInt64(calls))
    (calls, last) = (0, now)
  }

  /// The latencies of all calls, including the last ones, which can be fewer than `callsPerSample`.
  consuming func finished() -> LatencyHistogram {
    if calls > 0 { addSample() }
    return histogram
  }
}
