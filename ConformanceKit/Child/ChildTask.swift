#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Something that a check has a child process do with the engine.
///
/// A task is sent as JSON, and so are its messages. Each kind has a line in ``ChildRequest/kinds``.
protocol ChildTask: Codable, Sendable {
  associatedtype Message: Codable & Sendable

  /// Does the work, in the child. What it throws reaches the parent as ``ChildError``.
  ///
  /// - Parameter send: Sends a message to the parent at once, whatever becomes of this process afterwards. Any number of
  ///   tasks may call it at the same time.
  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Message) throws -> Void
  ) async throws
}

extension ChildTask {
  func answer(makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine) async throws {
    try await run(makeEngine: makeEngine) { try AnswerChannel.shared.send(ChildReply.message($0).line) }
  }

  /// Opens the engine, for a task.
  func open(
    _ place: URL, _ makeEngine: @Sendable (URL) async throws -> any StorageEngine
  ) async throws -> Subject {
    do {
      return Subject(try await makeEngine(place))
    } catch {
      throw CallFailure(call: "opening the engine", error: error)
    }
  }
}

/// A task as it is sent: one line.
struct ChildRequest {
  /// Every kind of task.
  static let kinds: [any ChildTask.Type] = [
    ReadEverything.self, WriteSteps.self, WriteInTasks.self, RunChains.self, ReadStore.self, CallEngine.self,
    DamagedReading.self, FullDiskScenario.self, FileSizeLimit.self, NoDescriptors.self, FailedOpenings.self,
    NoPermission.self, ClockSetBack.self,
    RefusedCalls.self, MeasureOpening.self, TakeStepsTask.self, InspectTask.self,
  ]

  let task: any ChildTask

  init(task: any ChildTask) { self.task = task }

  init(line: String) throws {
    let parts = line.split(separator: " ", maxSplits: 1)
    guard parts.count == 2, let kind = Self.kinds.first(where: { "\($0)" == parts[0] }) else {
      throw StorageError(.unsupported, "There is no task for a child process called \(line.prefix(80)).")
    }
    task = try JSONDecoder().decode(kind, from: Data(parts[1].utf8))
  }

  var line: String {
    get throws { "\(type(of: task)) \(String(decoding: try JSONEncoder().encode(task), as: UTF8.self))" }
  }
}

/// A line from a child.
enum ChildReply<Message: Codable & Sendable>: Codable {
  case message(Message)
  case failed(ChildError)
  case done

  var line: String {
    get throws { String(decoding: try JSONEncoder().encode(self), as: UTF8.self) }
  }
}

/// What a task threw in a child.
struct ChildError: Error, Codable, Hashable, CustomStringConvertible {
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
