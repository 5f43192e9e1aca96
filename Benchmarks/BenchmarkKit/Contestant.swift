#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A subject during one repetition: an engine that is open on a directory of its own.
final class Contestant {
  let name: String
  private let engine: any StorageEngine
  private let directory: ScratchDirectory
  private var contents = Workload.Contents.nothing

  init(_ subject: BenchmarkSubject, in scratch: ScratchDirectory) async throws {
    name = subject.name
    directory = try ScratchDirectory(in: scratch.url, named: "engine")
    do {
      engine = try await subject.makeEngine(directory.url)
    } catch {
      throw BenchmarkError.wrapping(error, "opening the engine failed", subject: subject.name)
    }
  }

  /// How many seconds the workload takes.
  func time(_ workload: Workload, records: BenchmarkRecords) async throws -> Double {
    func attempt<Result>(_ step: String, _ body: () async throws -> Result) async throws -> Result {
      do {
        return try await body()
      } catch {
        throw BenchmarkError.wrapping(error, step, subject: name, workload: workload.name)
      }
    }
    try await attempt("preparing failed") {
      try await workload.prepare(engine, holding: contents, records: records)
    }
    contents = .somethingElse

    let (seconds, verify) = try await attempt("the workload failed") {
      let clock = ContinuousClock()
      let start = clock.now
      let verify = try await workload.body(engine, records)
      return (start.duration(to: clock.now).seconds, verify)
    }

    try await attempt("verification failed") { try await verify() }
    contents = workload.leaves
    return seconds
  }

  /// Closes the engine and removes its directory, even if closing fails.
  func leave() async throws {
    let result: Result<Void, any Error>
    do {
      result = .success(try await engine.close())
    } catch {
      result = .failure(BenchmarkError.wrapping(error, "closing the engine failed", subject: name))
    }
    try directory.remove()
    try result.get()
  }
}

extension BenchmarkError {
  /// The error with the place where it happened. Cancellation stays what it is.
  fileprivate static func wrapping(
    _ error: any Error, _ message: String, subject: String, workload: String? = nil
  ) -> any Error {
    if error is CancellationError, Task.isCancelled { return error }
    return BenchmarkError(message, subject: subject, workload: workload, underlying: error)
  }
}

extension Duration {
  /// The duration in seconds; at least a nanosecond, so that it can be divided by.
  fileprivate var seconds: Double {
    max(1e-9, Double(components.seconds) + Double(components.attoseconds) * 1e-18)
  }
}
