#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A subject during one repetition: its engine, open in its own directory.
final class OpenSubject: Sendable {
  /// The entries in the engine.
  private enum Contents: Equatable {
    case nothing
    case records(RecordSet)
    case somethingElse
  }

  let name: String
  let subject: BenchmarkSubject
  private let directory: ScratchDirectory
  private let state: MutexProtected<(engine: (any StorageEngine)?, isNetworked: Bool, contents: Contents)>

  init(_ subject: BenchmarkSubject, in scratch: ScratchDirectory) async throws {
    name = subject.name
    self.subject = subject
    directory = try ScratchDirectory(in: scratch.url, named: "engine")
    state = MutexProtected((nil, false, .nothing))
    // In a task of its own, which is not cancelled with the run: if opening were interrupted, data that it has
    // created on a server could remain there.
    try await Task { try await open() }.value
  }

  /// The engine, or a ``ClosedEngine`` while it is closed.
  var engine: any StorageEngine { state.withLock { $0.engine } ?? ClosedEngine() }

  /// Opens the engine in its directory.
  func open() async throws {
    let engine: any StorageEngine
    do {
      engine = try await subject.makeEngine(directory.url)
    } catch {
      throw BenchmarkError.wrapping(error, "opening the engine failed", subject: name)
    }
    state.withLock { ($0.engine, $0.isNetworked) = (engine, engine.capabilities.contains(.networked)) }
  }

  /// Closes and releases the engine.
  func close() async throws {
    guard let engine = state.withLock({ $0.engine.take() }) else { return }
    do {
      try await engine.close()
    } catch {
      throw BenchmarkError.wrapping(error, "closing the engine failed", subject: name)
    }
  }

  /// Opens the engine in another process, in the same directory.
  func startWorker() async throws -> BenchmarkWorkerProcess {
    guard let worker = subject.worker else {
      throw BenchmarkError("there is no program to open the engine in another process", subject: name)
    }
    return try await BenchmarkWorkerProcess(worker, directory: directory.url)
  }

  /// Measures a workload. Returns nil if the engine lacks a capability, or the subject a worker, that it requires.
  func measure(_ workload: Workload, records: BenchmarkRecords, callsPerSample: Int) async throws
    -> Measurement?
  {
    guard engine.capabilities.isSuperset(of: workload.needs) else { return nil }
    if workload.needsWorker, subject.worker == nil { return nil }
    let run = WorkloadRun(self, records: records, seed: records.set.seed, callsPerSample: callsPerSample)
    do {
      try await prepare(workload, records)
      state.withLock { $0.contents = .somethingElse }
      try await workload.body(run)
    } catch {
      throw BenchmarkError.wrapping(error, nil, subject: name, workload: workload.name)
    }
    guard var measurement = run.measurement else {
      throw BenchmarkError(
        "the workload did not call measure(operations:_:)", subject: name, workload: workload.name)
    }
    do {
      measurement.bytesOnDisk = try bytesOnDisk(in: directory.url)
    } catch {
      throw BenchmarkError.wrapping(
        error, "the size of the files could not be determined", subject: name, workload: workload.name)
    }
    if workload.leaves == .records { measurement.bytesStored = records.bytes }
    state.withLock { state in
      state.contents =
        switch workload.leaves {
        case .nothing: .nothing
        case .records: .records(records.set)
        case .somethingElse: .somethingElse
        }
    }
    return measurement
  }

  /// Removes and writes entries until the engine has the contents that the workload starts from.
  private func prepare(_ workload: Workload, _ records: BenchmarkRecords) async throws {
    let contents = state.withLock { $0.contents }
    let wanted: Contents = workload.startsFrom == .records ? .records(records.set) : .nothing
    guard contents != wanted, workload.startsFrom != .somethingElse else { return }
    if contents != .nothing { try await engine.removeAllData() }
    if workload.startsFrom == .records { try await engine.write(records.all) }
  }

  /// Removes the engine's data on a server, closes the engine, and removes its directory. Each step runs even if
  /// another one fails.
  func closeAndRemove() async throws {
    // Later errors may be consequences of the first one.
    var failure: (any Error)?
    do {
      // In a task of its own, since that of the run may have been cancelled.
      if state.withLock({ $0.isNetworked }) {
        try await Task {
          // A workload that reopens it may have failed in between.
          if state.withLock({ $0.engine == nil }) { try await open() }
          try await engine.removeAllData()
        }.value
      }
    } catch {
      failure = BenchmarkError.wrapping(error, "removing the entries failed", subject: name)
    }
    do { try await close() } catch { failure = failure ?? error }
    do { try directory.remove() } catch { failure = failure ?? error }
    if let failure { throw failure }
  }
}
