import Foundation
import StockroomCore

/// Sets the clock of the worker, which ``FakeClock/tool(hasThreadSanitizer:)`` started, and sends the resulting time.
struct SetClock: WorkerTask {
  let secondsFromNow: Int

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Date) throws -> Void
  ) async throws {
    try FakeClock.requireSettableClock()
    FakeClock.set(secondsFromNow: secondsFromNow)
    try send(Date())
  }
}

/// Opens the place in a process, sets the clock forward by 25 hours, and opens it in another process.
func checkPlaceAcrossJump(_ context: CheckContext) async throws {
  let (place, isShared) = (context.place, context.capabilities.contains(.multiProcess))
  try await withSettableClocks(context) {
    try await openAcrossJump($0, $1, at: place, isShared: isShared)
  }
}

/// Calls the body with two processes whose clocks can be set.
///
/// - Throws: Also ``Skip``, if the processes do not work with the fake clock.
func withSettableClocks(
  _ context: CheckContext, _ body: @escaping @Sendable (WorkerProcess, WorkerProcess) async throws -> Void
) async throws {
  let tool = try FakeClock.tool()
  let (holder, second) = (try context.startWorker(under: tool), try context.startWorker(under: tool))
  let outcome = await withStallTimeout(context.timeoutWithLocks) { () -> Result<Void, any Error> in
    do {
      return .success(try await body(holder, second))
    } catch {
      return .failure(error)
    }
  }
  // The body has ended or timed out.
  context.noteProgress()
  for worker in [holder, second] {
    worker.closeInput()
    if case .failure = outcome { worker.kill() }
    await worker.waitUntilEnd()
    FakeClock.removeTraces(ofProcess: worker.identifier)
  }
  let skip = Skip(reason: "The process does not work with the fake clock of the kit.")
  guard case .success(let result) = outcome else { throw skip }
  do {
    try await translatingWorkerErrors { try result.get() }
  } catch let error as WorkerProcess.ProtocolError where error.what.contains("faketime:") {
    throw skip
  }
}

private func openAcrossJump(
  _ holder: WorkerProcess, _ second: WorkerProcess, at place: URL, isShared: Bool
) async throws {
  func write(_ name: String, _ worker: WorkerProcess) async throws {
    let entry = SharedWork.Entry(key: name, data: data(name))
    try await worker.perform(CallEngine(.write([entry]), at: place))
  }
  try await holder.perform(SetClock(secondsFromNow: 0))
  try await holder.perform(CallEngine(.open, at: place))
  try await write("before", holder)
  for worker in [holder, second] { try await worker.perform(SetClock(secondsFromNow: 90_000)) }
  do {
    try await second.perform(CallEngine(.open, at: place))
  } catch let error as WorkerError where !isShared && error.code == StorageError.Code.locked.name {
    return try await write("after", holder)
  }
  guard isShared else {
    throw Violation(
      "a process could open a place that another process had open, after the clock had jumped by 25 hours")
  }
  try await write("by the second", second)
  try await write("by the first", holder)
  for worker in [holder, second] {
    let found = try await worker.entries(at: place).map(\.key)
    try expect(
      found, areInAnyOrder: [key("before"), key("by the first"), key("by the second")],
      "after the clock had jumped by 25 hours, readAllEntries() of one of two processes")
  }
  try await setBack(holder, second, at: place)
}

/// Has one process overwrite an entry with the clock set back, after the other one has written it with the clock ahead.
/// The overwriting process itself has written nothing with the later time.
private func setBack(_ holder: WorkerProcess, _ second: WorkerProcess, at place: URL) async throws {
  let key = key("by both")
  func write(_ value: String, _ worker: WorkerProcess) async throws -> StorageEntry? {
    let entry = SharedWork.Entry(key: key.value, data: data(value))
    try await worker.perform(CallEngine(.write([entry]), at: place))
    return try await holder.entries(at: place).first { $0.key == key }
  }
  try await second.perform(SetClock(secondsFromNow: 93_600))
  let before = try await write("ahead", second)
  for worker in [holder, second] { try await worker.perform(SetClock(secondsFromNow: 3_600)) }
  let after = try await write("set back", holder)
  guard let before, let after else { throw Violation("one of two processes did not find \(key)") }
  if after.updatedAt.timeIntervalSince(before.updatedAt) < -precisionOfTime {
    throw Violation(
      "when the clock had been set back, and one process overwrote what another had written, updatedAt of "
        + "\(key) went back from \(describe(before.updatedAt)) to \(describe(after.updatedAt))", rule: .w2)
  }
}
