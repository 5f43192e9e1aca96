/// One measurement of a subject in a workload.
struct Measurement: Sendable {
  let operations: Int
  let seconds: Double
  /// The processor time of all threads, including that of the heartbeat.
  let processorSeconds: Double
  /// The growth of the resident memory at its peak, in bytes; nil where the system does not report it.
  let peakMemory: UInt64?
  /// The longest delay of a task that is due every millisecond, in seconds; nil if the work took less than that.
  let stall: Double?
  let latencies: LatencyHistogram
  /// The size of the engine's files after the measurement, in bytes.
  var bytesOnDisk: UInt64 = 0
  /// The size of the keys and values in them, in bytes, if it is known.
  var bytesStored: UInt64?
}
