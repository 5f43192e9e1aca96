import Dispatch
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// What all engines of a process that are open on the same place share.
final class LMDBPlace: Sendable {
  let environment: LMDBEnvironment
  let thread = DedicatedThread()
  let committer: GroupCommitter<LMDBRequest>

  fileprivate init(_ environment: LMDBEnvironment) {
    self.environment = environment
    committer = GroupCommitter(on: thread) { try environment.commit($0) }
  }

  /// Lets `body` read one moment, on the thread of the caller.
  func read<Value>(_ body: (LMDBSnapshot) throws -> Value) async throws -> Value {
    if case .value(let value) = try environment.read(body) { return value }
    return try await repeating { try environment.read(body) }
  }

  /// Lets `body` read one moment, for as long as it takes and giving way to others.
  func readLong<Value>(_ body: (LMDBLongRead) async throws -> Value) async throws -> Value {
    await environment.readers.beginLongRead()
    defer { environment.readers.endLongRead() }
    let read = try await repeating { try environment.begin() }
    defer { environment.end(read) }
    do {
      let value = try await body(read)
      // What was read in the meantime may not be there any more.
      try environment.checkResult(of: read)
      return value
    } catch {
      throw StorageError.fromTransaction(
        error, "Reading the LMDB database in \(environment.directory) failed")
    }
  }

  private func repeating<Value>(_ attempt: () throws -> LMDBEnvironment.Attempt<Value>) async throws -> Value
  {
    var end: ContinuousClock.Instant?
    while true {
      switch try attempt() {
      case .value(let value): return value
      case .paused: await environment.readers.untilResumed()
      case .needsRepair: try await thread.run { [environment] in try environment.repair() }
      case .isStale:
        let limit = end ?? .now + .seconds(1)
        end = limit
        guard ContinuousClock.now < limit else {
          throw StorageError(
            .io,
            "\(environment.file.path) has been written without its lock file, or written over, since it was opened."
          )
        }
        await Task.yield()
      }
    }
  }

  /// Closes the environment, on a thread that may wait for whoever is opening or closing it at the moment.
  fileprivate func close() {
    while environment.lockFile.isImmutable { usleep(100_000) }
    // LMDB makes the last process that closes take away what the next one is about to use (from 0.9.26 on). Whoever keeps
    // the lock for longer than this opens nothing.
    let isLocked = (try? environment.file.lock(timeout: environment.lockTimeout)) != nil
    finishClosing(isLocked: isLocked)
  }

  /// Closes the environment, unless it would have to wait.
  fileprivate func tryToClose() -> Bool {
    guard !environment.lockFile.isImmutable, environment.file.tryLock() else { return false }
    finishClosing(isLocked: true)
    return true
  }

  private func finishClosing(isLocked: Bool) {
    environment.close(isLocked: isLocked)
    LMDBRegistry.forget(self)
  }
}

/// The places that are open in this process, so that no environment is ever opened twice.
///
/// A place is known by the identity of its `data.mdb`, so that no symbolic link and no other
/// spelling of the path makes a second one of it. Nobody waits for anything while the lock is held.
enum LMDBRegistry {
  private enum Entry {
    case open(LMDBPlace, users: Int)
    /// It is being opened or closed. The group is left when that is over.
    case changing(DispatchGroup)
  }

  private struct State {
    var entries: [FileIdentity: Entry] = [:]
    /// The lock files that are open, for whatever database.
    var lockFiles: Set<FileIdentity> = []
  }

  private static let state = MutexProtected(State())

  /// The place in the directory, opened if it is not yet. Every call is matched by one of ``release(_:)``.
  ///
  /// - Throws: `StorageError` with code `locked` if somebody has kept the files locked for as long as `lockTimeout`.
  static func place(
    in directory: FileManager.Directory, permissions: FilePermissions, lockTimeout: Duration
  ) throws -> LMDBPlace {
    let end = DispatchTime.now() + lockTimeout.seconds
    while true {
      let file = try LMDBFile(directory: directory, permissions: permissions)
      let change = DispatchGroup()
      change.enter()
      switch enter(file.identity, change) {
      case .open(let place, _):
        change.leave()
        do {
          // Another one at this path is not the one that is open.
          try place.environment.checkFiles()
        } catch {
          if release(place) { place.drop() }
          throw error
        }
        return place
      case .changing(let other) where other !== change:
        change.leave()
        guard other.wait(timeout: end) == .success else {
          throw StorageError(
            .locked,
            "Another engine has been opening or closing the LMDB database in \(file.directory) for \(lockTimeout)."
          )
        }
      case .changing:
        defer { change.leave() }
        do {
          guard let place = try open(file, permissions, lockTimeout) else {
            set(nil, for: file.identity)
            continue
          }
          set(.open(place, users: 1), for: file.identity)
          return place
        } catch {
          set(nil, for: file.identity)
          throw error
        }
      }
    }
  }

  /// What is there under the identity, with a user more, or else the caller's change.
  private static func enter(_ identity: FileIdentity, _ change: DispatchGroup) -> Entry {
    state.withLock { state in
      let entry: Entry =
        switch state.entries[identity] {
        case .open(let place, let users): .open(place, users: users + 1)
        case .changing(let other): .changing(other)
        case nil: .changing(change)
        }
      state.entries[identity] = entry
      return entry
    }
  }

  private static func set(_ entry: Entry?, for identity: FileIdentity) {
    state.withLock { $0.entries[identity] = entry }
  }

  /// Opens the file's environment, or returns nil if somebody has just put another file in its place.
  private static func open(
    _ file: LMDBFile, _ permissions: FilePermissions, _ lockTimeout: Duration
  ) throws -> LMDBPlace? {
    guard try file.lock(timeout: lockTimeout) else { return nil }
    defer { file.unlock() }
    try LMDBFileHeader.validate(fileDescriptor: file.descriptor, path: file.path)
    var claimed: FileIdentity?
    do {
      let lockFile = try LMDBLockFile(directory: file.directory, permissions: permissions) { identity in
        let isFree = state.withLock { $0.lockFiles.insert(identity).inserted }
        if isFree { claimed = identity }
        return isFree
      }
      do {
        return LMDBPlace(try LMDBEnvironment(file, lockFile, lockTimeout: lockTimeout))
      } catch {
        if lockFile.isNew { lockFile.remove() }
        lockFile.close()
        throw error
      }
    } catch {
      if let claimed { state.withLock { _ = $0.lockFiles.remove(claimed) } }
      throw error
    }
  }

  /// Counts a user out. The last one has to close the place.
  ///
  /// - Returns: Whether it was the last one.
  static func release(_ place: LMDBPlace) -> Bool {
    let identity = place.environment.file.identity
    return state.withLock { state in
      guard case .open(_, let users) = state.entries[identity] else { return false }
      if users > 1 {
        state.entries[identity] = .open(place, users: users - 1)
        return false
      }
      let change = DispatchGroup()
      change.enter()
      state.entries[identity] = .changing(change)
      return true
    }
  }

  /// The place has been closed.
  fileprivate static func forget(_ place: LMDBPlace) {
    let environment = place.environment
    let entry = state.withLock { state in
      state.lockFiles.remove(environment.lockFile.identity)
      return state.entries.removeValue(forKey: environment.file.identity)
    }
    if case .changing(let change) = entry { change.leave() }
  }
}

extension LMDBPlace {
  /// Closes the place, after the last user, on the thread of its own.
  func shutDown() async {
    // LMDB can be closed only once it can write to that file.
    if environment.lockFile.isImmutable { return drop() }
    do {
      try await thread.run { self.close() }
    } catch {
      // No thread to be had.
      close()
    }
    thread.stop()
  }

  /// Closes the place, after the last user, without waiting for anybody: on the thread of its own if need be, which then ends
  /// by itself (rules C5, O4).
  func drop() {
    if tryToClose() { return thread.stop() }
    do {
      try thread.enqueue {
        self.close()
        self.thread.stop()
      }
    } catch {
      // No thread to be had. To wait is better than to leave everything open.
      close()
      thread.stop()
    }
  }
}

extension Duration {
  fileprivate var seconds: Double {
    Double(components.seconds) + Double(components.attoseconds) / 1e18
  }
}
