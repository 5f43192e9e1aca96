import FaultyEngineWorker
import Foundation
import StockroomCore
import Testing

@testable import ConformanceKit

@Suite("The task that checks a state after a power cut")
struct InspectTaskTests {
  private static func request(at directory: URL, tolerance: Double) throws -> String {
    try ClockTolerance.$seconds.withValue(tolerance) {
      try WorkerRequest(
        task: InspectTask(
          directory: directory, scenario: PowerCutScenario(seed: 1, length: 14),
          candidates: [PowerCutCandidate(through: 0)], capabilities: ReferenceEngine.promises.rawValue,
          since: Date())
      ).line
    }
  }

  /// The messages of the task for an empty place, with an engine whose clock is an hour behind.
  private func messages(tolerance: Double) async throws -> [InspectTask.Message] {
    let directory = FileManager.default.temporaryDirectory.appending(
      path: "inspected-\(UUID().uuidString)", directoryHint: .isDirectory)
    defer { try? FileManager.default.removeItem(at: directory) }
    // In the form in which the process receives it.
    let request = try WorkerRequest(line: Self.request(at: directory, tolerance: tolerance))
    let messages = ReceivedMessages()
    try await request.perform { task in
      try await #require(task as? InspectTask).run(
        makeEngine: { IsAnHourBehind(base: try ReferenceEngine(directory: $0)) },
        send: { message in messages.all.withLock { $0.append(message) } })
    }
    return messages.all.withLock { $0 }
  }

  private func violations(in messages: [InspectTask.Message]) -> [Violation] {
    messages.compactMap { if case .broken(let violation) = $0 { violation } else { nil } }
  }

  /// Regression: the process did not receive the suite's tolerance.
  @Test("It applies the suite's clock tolerance to timestamps")
  func clockTolerance() async throws {
    let allowed = violations(in: try await messages(tolerance: 7_200))
    #expect(allowed.isEmpty, "\(allowed)")
    let refused = violations(in: try await messages(tolerance: 0.002))
    #expect(refused.count == 1 && refused.first?.rule == .w2, "\(refused)")
  }

  /// Regression: the whole task counted as one call, with a limit of a minute.
  @Test("It reports progress after each answer")
  func progress() async throws {
    let count = try await messages(tolerance: 7_200).count {
      if case .progress = $0 { true } else { false }
    }
    #expect(count > 10)
  }
}

private final class ReceivedMessages: Sendable {
  let all = MutexProtected<[InspectTask.Message]>([])
}

/// Returns times of a clock that is an hour behind.
private struct IsAnHourBehind: FaultyEngine {
  let base: ReferenceEngine
  private func shifted(_ date: Date) -> Date { date.addingTimeInterval(-3_600) }
  private func shifted(_ entries: [StorageEntry]) -> [StorageEntry] {
    entries.map { entry in
      StorageEntry(
        key: entry.key, data: entry.data, createdAt: shifted(entry.createdAt),
        updatedAt: shifted(entry.updatedAt))
    }
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await base.createdAt(key: key).map { shifted($0) }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await base.updatedAt(key: key).map { shifted($0) }
  }
  func readAllEntries() async throws -> [StorageEntry] { shifted(try await base.readAllEntries()) }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    shifted(try await base.readEntries(keys: keys))
  }
}
