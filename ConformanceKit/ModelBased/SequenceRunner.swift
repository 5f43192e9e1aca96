#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A sequence whose last call fails.
struct FailedSequence: Sendable {
  /// The calls, up to the failing one.
  let operations: [Command]
  let finding: ModelMismatch
  /// The result of the last call.
  let answer: CommandAnswer
  /// The expected state before the last call.
  let model: ReferenceModel
  /// The duration of the calls, except those that only wait.
  let time: Duration
}

extension FailedSequence {
  /// Where the sequence would have to wait in order to fail even if its calls take no time. Nil if it needs no wait
  /// there. Calls that are slow on a busy machine are fast on another one.
  var missingWait: Int? {
    // If two results differ, no wait is needed, since they differ by more than the tolerance.
    guard case .time(_, _, .isNot(let call)) = finding.kind, let deviation = finding.deviation,
      abs(deviation) < time.inSeconds
    else { return nil }
    let place = deviation < 0 ? call : call + 1
    let isThere = [place - 1, place].contains { operations.indices.contains($0) && operations[$0] == .wait }
    return isThere ? nil : place
  }
}

/// Runs sequences, each in a new place.
struct SequenceRunner: Sendable {
  let context: CheckContext

  /// Makes the calls one after the other until one fails.
  ///
  /// - Throws: `CallFailure` if the engine cannot be opened or closed; `CancellationError`.
  func failure(of operations: [Command]) async throws -> FailedSequence? {
    let place = context.place.appending(path: "sequence-\(UUID().uuidString)", directoryHint: .isDirectory)
    // It does not exist if the engine uses no files.
    defer { try? FileManager.default.removeItem(at: place) }
    var engine = try await context.openUnregistered(place)
    defer { engine.release() }
    let failure = try await failure(of: operations, on: &engine, at: place)
    // An engine that has failed need not close properly.
    if failure == nil { try await engine.close() } else { try? await engine.close() }
    return failure
  }

  private func failure(
    of operations: [Command], on engine: inout EngineUnderTest, at place: URL
  ) async throws -> FailedSequence? {
    let ordersBatches = context.capabilities.contains(.atomicBatches)
    var model = ReferenceModel(context.capabilities)
    var waiting = Duration.zero
    let start = ContinuousClock.now
    for (call, operation) in operations.enumerated() {
      try Task.checkCancellation()
      let (before, beginning) = (Date(), ContinuousClock.now)
      let answer = try await operation.perform(on: &engine) { try await context.openUnregistered(place) }
      let moment = ReferenceModel.TimeWindow(call: call, before: before, after: Date())
      if operation == .wait { waiting += .now - beginning }
      if let finding = model.check(operation, answer, at: moment, ordersBatches: ordersBatches) {
        return FailedSequence(
          operations: Array(operations.prefix(call + 1)), finding: finding, answer: answer, model: model,
          time: .now - start - waiting)
      }
    }
    return nil
  }
}
