#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// A task that a worker process performs with the engine for a check.
///
/// A task is sent as JSON, and so are its messages. Each kind is listed in ``WorkerRequest/kinds``.
protocol WorkerTask: Codable, Sendable {
  associatedtype Message: Codable & Sendable

  /// Performs the task, in the worker. Its errors reach the parent as ``WorkerError``, except ``Skip``.
  ///
  /// - Parameter send: Sends a message to the parent at once, so that it arrives even if this process then crashes. Any
  ///   number of tasks may call it concurrently.
  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Message) throws -> Void
  ) async throws
}

extension WorkerTask {
  func answer(makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine) async throws {
    try await run(makeEngine: makeEngine) { try AnswerChannel.shared.send(WorkerReply.message($0).line) }
  }

  /// Opens the engine, for a task.
  func open(
    _ place: URL, _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws -> EngineUnderTest {
    do {
      return EngineUnderTest(try await makeEngine(place))
    } catch {
      throw CallFailure(call: "opening the engine", error: error)
    }
  }
}

/// A task in the form in which it is sent: one line, with the clock tolerance.
struct WorkerRequest {
  /// Every kind of task.
  static let kinds: [any WorkerTask.Type] = [
    ReadEverything.self, WriteSteps.self, WriteInTasks.self, RunChains.self, ReadStore.self, CallEngine.self,
    CorruptedStoreCheck.self, FullDiskScenario.self, FileSizeLimit.self, DescriptorExhaustion.self,
    FailedOpenings.self, ReturnedValues.self, ReadClock.self, SetClock.self,
    CountInBody.self,
    PermissionDenial.self, ClockRollback.self,
    ResourceBounds.self, ClockJumps.self,
    RefusedCalls.self, FailingReads.self, FailingChanges.self, FailingFeeds.self,
    FailingCompactions.self, MeasureOpening.self,
    TakeStepsTask.self,
    InspectTask.self,
    SystemFaultRun.self, InheritedDescriptors.self, HistoryShare.self,
    MakeChanges.self, ExchangeChanges.self, SubscriberBounds.self, MakeFiles.self,
    MeasureRecovery.self,
  ]

  let task: any WorkerTask
  private let clockTolerance: Double

  init(task: any WorkerTask) {
    self.task = task
    clockTolerance = ClockTolerance.seconds
  }

  init(line: String) throws {
    let parts = line.split(separator: " ", maxSplits: 2)
    guard parts.count == 3, let kind = Self.kinds.first(where: { "\($0)" == parts[0] }),
      let tolerance = Double(parts[1])
    else {
      throw StorageError(.unsupported, "Unknown task of a worker process: \(line.prefix(80)).")
    }
    task = try JSONDecoder().decode(kind, from: Data(parts[2].utf8))
    clockTolerance = tolerance
  }

  var line: String {
    get throws {
      let contents = String(decoding: try JSONEncoder().encode(task), as: UTF8.self)
      return "\(type(of: task)) \(clockTolerance) \(contents)"
    }
  }

  /// Performs the task with the clock tolerance of the check that sent it.
  func perform(_ body: (any WorkerTask) async throws -> Void) async throws {
    try await ClockTolerance.$seconds.withValue(clockTolerance) { try await body(task) }
  }
}

/// A line from a worker.
enum WorkerReply<Message: Codable & Sendable>: Codable {
  case message(Message)
  case failed(WorkerError)
  /// The task cannot run here.
  case skipped(reason: String)
  case done

  var line: String {
    get throws { String(decoding: try JSONEncoder().encode(self), as: UTF8.self) }
  }
}

/// An error that a task threw in a worker.
struct WorkerError: Error, Codable, Hashable, CustomStringConvertible {
  /// The code, if it was a `StorageError`.
  let code: String?
  /// The rule, if it was a ``Violation`` that names one.
  let rule: ContractRule?
  let description: String

  init(_ error: any Error) {
    code = ((error as? CallFailure)?.error as? StorageError ?? error as? StorageError)?.code.name
    rule = (error as? Violation)?.rule
    description = String(describing: error)
  }
}
