#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Adds 1 to a counter in a transaction of the engine that is open in the worker. In each run, the body sends the
/// number that it has read.
struct CountInBody: WorkerTask {
  let place: URL
  /// A FIFO. The body waits until another process has opened it for writing.
  var gate: URL?
  /// How far the clock jumps during the body.
  var secondsFromNow = 0

  static let counter = key("counter")

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Int) throws -> Void
  ) async throws {
    try await OpenEngines.engine(at: place).withTransaction { transaction in
      let number = try transaction.number(Self.counter)
      try send(number)
      if let gate {
        FakeClock.set(secondsFromNow: secondsFromNow)
        try System.waitForWriter(of: gate)
      }
      try transaction.write(data("\(number + 1)"), key: Self.counter)
    }
  }
}

/// Moves the clock forward by 25 hours while the body of a transaction runs in one process, and has another process add
/// to the counter meanwhile. A lock that expires by the clock, or by the modification time of its file, does not
/// protect the body then.
func checkBodyAcrossJump(_ context: CheckContext) async throws {
  let (place, gate) = (context.place, context.root.appending(path: "gate"))
  try System.makeFIFO(gate)
  try await withSettableClocks(context) { try await countAcrossJump($0, $1, at: place, gate) }
}

private func countAcrossJump(
  _ holder: WorkerProcess, _ second: WorkerProcess, at place: URL, _ gate: URL
) async throws {
  for worker in [holder, second] {
    try await worker.perform(SetClock(secondsFromNow: 0))
    try await worker.perform(CallEngine(.open, at: place))
  }
  let jump = 90_000
  let body = try holder.start(CountInBody(place: place, gate: gate, secondsFromNow: jump))
  _ = try await body.next()
  try await second.perform(SetClock(secondsFromNow: jump))
  let hasCounted = Latch()
  async let isSecondDone = { @concurrent in
    defer { hasCounted.signal() }
    return try await returns { try await second.perform(CountInBody(place: place)) }
  }()
  // The second process may have to wait for the body.
  _ = await hasCounted.waitElsewhere(for: .seconds(2))
  let isFirstDone = try await System.withWriter(of: gate) {
    try await returns { while try await body.next() != nil {} }
  }
  let count = [isFirstDone, try await isSecondDone].count { $0 }
  let found = try await second.entries(at: place).first { $0.key == CountInBody.counter }?.data
  try expect(
    found, is: data("\(count)"),
    "a counter to which \(count) transactions of two processes had added 1, one of them in a body during which the clock "
      + "had jumped by 25 hours,")
}

/// Whether a transaction of a worker has returned. False if the engine has aborted it with `conflict` or `locked`.
private func returns(_ task: () async throws -> Void) async throws -> Bool {
  do {
    try await task()
    return true
  } catch let error as WorkerError
    where [StorageError.Code.conflict.name, StorageError.Code.locked.name].contains(error.code)
  {
    return false
  }
}
