import Foundation
import StockroomCore
import Testing

@testable import BenchmarkKit

/// Runs benchmarks of small records in a directory that must be empty afterwards, even if the run fails.
func runSmall(
  _ subjects: [BenchmarkSubject], entries: Int = 250, repetitions: Int = 2,
  workloads: [Workload] = Workload.standard, progress: @Sendable (BenchmarkProgress) -> Void = { _ in }
) async throws -> BenchmarkReport {
  let scratch = try ScratchDirectory(in: FileManager.default.temporaryDirectory, named: "runner-tests")
  let result: Result<BenchmarkReport, any Error>
  do {
    let configuration = BenchmarkConfiguration(
      entries: entries, valueSize: 20, repetitions: repetitions, workloads: workloads,
      directory: scratch.url)
    result = .success(
      try await BenchmarkRunner(configuration: configuration).run(subjects, progress: progress))
  } catch {
    result = .failure(error)
  }
  #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.url.path()) == [])
  try scratch.remove()
  return try result.get()
}
