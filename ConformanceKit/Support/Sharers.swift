#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Two or more engines or processes that share a place. With more than two engines, the last one makes the changes of
/// the second.
enum Sharers {
  case engines([EngineUnderTest])
  case processes(EngineUnderTest, WorkerProcess, URL)

  /// The engine that reads the changes of the second.
  var first: EngineUnderTest {
    switch self {
    case .engines(let engines): engines[0]
    case .processes(let engine, _, _): engine
    }
  }

  /// - Parameter method: The method that performs the operations, or nil for the most specific one.
  func perform(_ operations: [StorageOperation], bySecond: Bool, by method: ChangeMethod?) async throws {
    switch self {
    case .processes(_, let worker, let place) where bySecond:
      let sent = operations.map(SentOperation.init)
      try await worker.perform(CallEngine(.perform(sent, by: method), at: place))
    case .engines(let engines):
      try await engines[bySecond ? engines.count - 1 : 0].perform(operations, by: method)
    case .processes(let engine, _, _): try await engine.perform(operations, by: method)
    }
  }

  /// Has the second engine import the entries with their times.
  func importBySecond(_ entries: [StorageEntry]) async throws {
    switch self {
    case .engines(let engines): try await engines[engines.count - 1].writeEntries(entries)
    case .processes(_, let worker, let place):
      try await worker.perform(CallEngine(.importEntries(entries.map(SentEntry.init)), at: place))
    }
  }

  /// Has the second process reopen the place, or has another engine open and close it.
  func reopenSecond(_ context: CheckContext) async throws {
    switch self {
    case .engines:
      if let another = try await context.openUnlessLocked(context.place) { try await context.close(another) }
    case .processes(_, let worker, let place):
      try await worker.perform(CallEngine(.close, at: place))
      try await worker.perform(CallEngine(.open, at: place))
    }
  }

  /// Fails unless all return the same entries, with the same times.
  func expectAgreement() async throws {
    switch self {
    case .engines(let engines):
      let entries = try await engines[0].readAllEntries()
      for engine in engines.dropFirst() { try expectEqual(try await engine.readAllEntries(), entries) }
    case .processes(let engine, let worker, let place):
      try expectEqual(try await worker.entries(at: place), try await engine.readAllEntries())
    }

    func expectEqual(_ others: [StorageEntry], _ entries: [StorageEntry]) throws {
      try expect(
        Set(others.map(\.key)) == Set(entries.map(\.key)), "two had different keys in readAllEntries()")
      let times = Dictionary(entries.map { ($0.key, $0) }) { first, _ in first }
      for other in others {
        guard let entry = times[other.key],
          isSame(other.createdAt, entry.createdAt) && isSame(other.updatedAt, entry.updatedAt)
        else { throw Violation("two had different times of \(other.key) in readAllEntries()") }
      }
    }
  }

  func verify(
    _ answers: ExpectedAnswers, first: Int, inSecond: Bool, noting progress: CheckProgress
  ) async throws {
    progress.note()
    switch self {
    case .engines(let engines):
      for engine in inSecond ? engines.dropFirst() : engines.prefix(1) {
        try await answers.verify(engine, first: first)
        do {
          try await expectAllWaysAgree(in: engine, noting: progress)
        } catch let violation as Violation {
          throw Violation(violation.description)
        }
      }
    case .processes(let engine, let worker, let place):
      if !inSecond { return try await answers.verify(engine, first: first) }
      try await worker.perform(CallEngine(.compare(answers, first: first), at: place))
    }
  }
}
