import Dispatch
import StockroomCore
import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

extension LMDBSharedEnvironment {
  /// Checks all pages in the snapshot of one transaction, on a separate thread, as one of a limited number of
  /// long reads. Writes continue in the meantime.
  func verifyElsewhere() async throws {
    try await environment.readers.longReads.enter()
    defer { environment.readers.longReads.leave() }
    let thread = DedicatedThread()
    defer { thread.stop() }
    let cancellation = Cancellation()
    try await withTaskCancellationHandler {
      try await thread.run { try self.verify { cancellation.isCancelled.load(ordering: .relaxed) } }
    } onCancel: {
      cancellation.isCancelled.store(true, ordering: .relaxed)
    }
  }

  private final class Cancellation: Sendable {
    let isCancelled = Atomic(false)
  }

  /// Checks all pages in the snapshot of one transaction, on the caller's thread.
  ///
  /// - Throws: `StorageError` with code `corrupted` or `io`; `CancellationError`.
  func verify(isCancelled: () -> Bool = { false }) throws {
    var retryLimit = StaleRetryLimit()
    while true {
      if isCancelled() { throw CancellationError() }
      switch try environment.begin() {
      case .value(let read):
        defer { environment.end(read) }
        if try environment.verify(read, isCancelled: isCancelled) { return }
        retryLimit = StaleRetryLimit()
      case .needsRepair: try repair()
      case .paused: usleep(1_000)
      case .isStale:
        try retryLimit.check(environment)
        usleep(1_000)
      }
    }
  }

  private func repair() throws {
    let isOver = DispatchSemaphore(value: 0)
    let result = MutexProtected<Result<Void, any Error>>(.success(()))
    try thread.enqueue { [environment] in
      let outcome = Result { try environment.repair() }
      result.withLock { $0 = outcome }
      isOver.signal()
    }
    isOver.wait()
    try result.withLock { $0 }.get()
  }
}

extension LMDBEnvironment {
  /// Checks the snapshot of a transaction.
  ///
  /// - Returns: False if two later transactions were committed before the meta page of the snapshot was read.
  fileprivate func verify(_ read: LMDBLongRead, isCancelled: () -> Bool) throws -> Bool {
    let snapshot = try LMDBFileHeader.snapshot(
      of: UInt64(clamping: read.snapshot.number), pageSize: read.pageSize, fileDescriptor: file.descriptor,
      path: file.path)
    guard let snapshot else { return false }
    do {
      try withoutActuallyEscaping(isCancelled) { isCancelled in
        var check = LMDBTreeCheck(file: file.descriptor, snapshot, isCancelled: isCancelled)
        try check.checkAll()
      }
    } catch {
      throw StorageError.fromTransaction(error, "\(file.path) is corrupted: verifying it failed")
    }
    try checkFiles()
    return true
  }
}
