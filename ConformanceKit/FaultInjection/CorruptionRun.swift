import Foundation
import StockroomCore

/// Corrupts copies of a closed store, one after the other, and opens and reads each: in a worker process, which is
/// restarted when it has died, or in this process if there is no worker.
struct CorruptionRun {
  /// Far longer than it takes to read a few hundred kilobytes on a busy machine.
  private let limit: Duration

  private let store: ClosedStore
  private let script: StoreScript
  private var worker: WorkerProcess?
  private let hasWorker: Bool
  private(set) var violations: [Violation] = []

  /// - Parameter mustHaveWorker: Whether to skip the check without a worker.
  init(in context: CheckContext, script: StoreScript, mustHaveWorker: Bool = false) async throws {
    self.script = script
    limit = context.timeout(atMost: .seconds(30))
    do {
      worker = try context.startWorker()
    } catch let skip as Skip {
      if mustHaveWorker { throw skip }
    }
    hasWorker = worker != nil
    store = try await ClosedStore(in: context, script: script)
  }

  var files: [String] { store.files }

  /// Some of the files, spread evenly over all.
  func files(atMost count: Int) -> [String] {
    (0..<min(count, files.count)).map { files[$0 * files.count / min(count, files.count)] }
  }

  func size(of file: String) -> Int {
    (try? Data(contentsOf: store.directory.appending(path: file)).count) ?? 0
  }

  /// Some earlier lengths of a file that may have grown since. In a log, these are the ends of records.
  func formerEnds(of file: String) -> [Int] {
    let all = (store.sizesOfFiles[file] ?? []).filter { 0 < $0 && $0 < size(of: file) }.sorted()
    return (0..<min(8, all.count)).map { all[$0 * all.count / min(8, all.count)] }
  }

  /// Whether the file may hold more than half of the store's data, so that the other files, such as a log, hold less.
  /// Removing it may remove the store, and not just a part. Values are noise, so they have the same size in all files.
  private func mayHoldMost(_ file: String) -> Bool {
    2 * size(of: file) > script.contents().values.reduce(0) { $0 + $1.count }
  }

  /// Whether all other files are empty.
  private func holdsEverything(_ file: String) -> Bool {
    files.allSatisfy { $0 == file || size(of: $0) == 0 }
  }

  /// One of infinitely many corruptions.
  func corruption(number: Int, seed: UInt64) -> Corruption {
    let sizes = Dictionary(uniqueKeysWithValues: files.map { ($0, size(of: $0)) })
    return Corruption(number: number, seed: seed, store: store, sizes: sizes)
  }

  /// Fails if verify() reports corruption in an uncorrupted store.
  mutating func checkVerifyingUncorrupted() async throws {
    let reading = CorruptedStoreCheck(
      directory: try store.copy { _ in }, script: script, what: "of a store that is as it was", codes: [],
      mustBeRight: true, mustBeWhole: true, isVerified: true, mayBeStale: false, mayBeEmpty: false,
      remedy: nil)
    try await check(reading)
  }

  /// Corrupts a copy of the store, checks it, records a violation, and removes the copy.
  ///
  /// - Parameter isVerified: Whether verify() is called before anything is read. If it succeeds, no later read may
  ///   report corruption.
  mutating func check(_ corruption: Corruption, isVerified: Bool = false) async throws {
    let copy = try store.copy { try corruption.apply(in: $0, olderFiles: store.olderFiles) }
    defer { try? FileManager.default.removeItem(at: copy) }
    let mustBeRight =
      store.context.capabilities.contains(.detectsCorruption)
      && !(corruption.mayEmpty && holdsEverything(corruption.file))
    let reading = CorruptedStoreCheck(
      directory: copy, script: script, what: corruption.description, codes: corruption.codes,
      mustBeRight: mustBeRight, mustBeWhole: corruption.isCut,
      mayLackLastBatches: corruption.isCut && !store.context.capabilities.contains(.durableWrites),
      isVerified: isVerified,
      mayBeStale: corruption.mayBeStale, mayBeEmpty: corruption.mayEmpty && mayHoldMost(corruption.file),
      remedy: .init(
        original: store.directory.appending(path: corruption.file),
        corrupted: copy.appending(path: corruption.file)))
    do {
      try await check(reading)
    } catch let violation as Violation {
      violations.append(violation)
    } catch let failure as CallFailure {
      violations.append(Violation("\(corruption), \(failure)"))
    } catch let hang as WorkerStalled {
      worker = nil
      violations.append(Violation("\(hang.step) had not finished after \(limit)"))
    }
  }

  private mutating func check(_ reading: CorruptedStoreCheck) async throws {
    let context = store.context
    guard hasWorker else {
      return try await reading.check(
        makeEngine: { try await context.openUnregistered($0) }, note: { _ in context.noteProgress() })
    }
    let worker = try await context.readyWorker(self.worker)
    self.worker = nil
    try await context.check(reading, in: worker, limit: limit)
    self.worker = worker
  }

  /// Ends the worker process, and fails if there was a violation.
  func finish(_ what: String) throws {
    worker?.kill()
    guard let first = violations.first else { return }
    let others = violations.count == 1 ? "" : " (the first of \(violations.count) violations\(what))"
    throw Violation(first.description + others, rule: first.rule)
  }
}
