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

/// The environments that are open in this process. Ensures that none is opened twice.
///
/// An environment is identified by its `data.mdb`, so a symbolic link or another spelling of the path does not open a
/// second one. No thread waits while it holds the mutex.
enum LMDBRegistry {
  private enum Entry {
    case open(LMDBSharedEnvironment, users: Int)
    /// The environment is being opened or closed. The group is left when that has ended.
    case changing(DispatchGroup)
  }

  private struct State {
    var entries: [FileIdentity: Entry] = [:]
    /// The open lock files of all databases.
    var lockFiles: Set<FileIdentity> = []
  }

  private static let state = MutexProtected(State())

  /// Returns the environment in the directory, and opens it if it is not open yet. Every call must be matched by a call
  /// of ``release(_:)``.
  ///
  /// - Throws: `StorageError` with code `locked` if others have held the locks of the files for `lockTimeout`.
  static func environment(
    in directory: FileManager.Directory, permissions: FilePermissions, lockTimeout: Duration
  ) throws -> LMDBSharedEnvironment {
    let end = DispatchTime.now() + lockTimeout.seconds
    while true {
      let file = try LMDBFile(directory: directory, permissions: permissions)
      let change = DispatchGroup()
      change.enter()
      switch enter(file.identity, change) {
      case .open(let shared, _):
        change.leave()
        do {
          // If the path now leads to another file, the open environment must not be used for it.
          try shared.environment.checkFiles()
        } catch {
          if release(shared) { shared.drop() }
          throw error
        }
        return shared
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
          guard let shared = try open(file, permissions, lockTimeout) else {
            set(nil, for: file.identity)
            continue
          }
          set(.open(shared, users: 1), for: file.identity)
          return shared
        } catch {
          set(nil, for: file.identity)
          throw error
        }
      }
    }
  }

  /// Adds a user to the open environment with the identity and returns its entry; or returns the change in progress; or
  /// registers the caller's change and returns it.
  private static func enter(_ identity: FileIdentity, _ change: DispatchGroup) -> Entry {
    state.withLock { state in
      let entry: Entry =
        switch state.entries[identity] {
        case .open(let shared, let users): .open(shared, users: users + 1)
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

  /// Opens the file's environment, or returns nil if another file has just replaced it.
  private static func open(
    _ file: LMDBFile, _ permissions: FilePermissions, _ lockTimeout: Duration
  ) throws -> LMDBSharedEnvironment? {
    guard try file.lock(timeout: lockTimeout) else { return nil }
    defer { file.unlock() }
    try LMDBFileCheck.validate(fileDescriptor: file.descriptor, path: file.path)
    var claimed: FileIdentity?
    do {
      let lockFile = try LMDBLockFile(directory: file.directory, permissions: permissions) { identity in
        let isFree = state.withLock { $0.lockFiles.insert(identity).inserted }
        if isFree { claimed = identity }
        return isFree
      }
      do {
        return LMDBSharedEnvironment(
          try LMDBEnvironment(file, lockFile, lockTimeout: lockTimeout))
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

  /// Removes a user. The last one must close the environment.
  ///
  /// - Returns: Whether it was the last one.
  static func release(_ shared: LMDBSharedEnvironment) -> Bool {
    let identity = shared.environment.file.identity
    return state.withLock { state in
      guard case .open(_, let users) = state.entries[identity] else { return false }
      if users > 1 {
        state.entries[identity] = .open(shared, users: users - 1)
        return false
      }
      let change = DispatchGroup()
      change.enter()
      state.entries[identity] = .changing(change)
      return true
    }
  }

  /// Call it when the environment has been closed.
  static func forget(_ shared: LMDBSharedEnvironment) {
    let environment = shared.environment
    let entry = state.withLock { state in
      state.lockFiles.remove(environment.lockFile.identity)
      return state.entries.removeValue(forKey: environment.file.identity)
    }
    if case .changing(let change) = entry { change.leave() }
  }
}

extension LMDBSharedEnvironment {
  /// Closes the environment, after the last user, on its own thread.
  func shutDown() async {
    // LMDB can be closed only once it can write to `lock.mdb`.
    if environment.lockFile.isImmutable { return drop() }
    do {
      try await thread.run { self.close() }
    } catch {
      // No thread can be created.
      close()
    }
    thread.stop()
  }

  /// Closes the environment, after the last user, without waiting: if necessary on its own thread, which then
  /// ends by itself (rules C5, O4).
  func drop() {
    if !environment.feed.isWatching, tryToClose() { return thread.stop() }
    do {
      try thread.enqueue {
        self.close()
        self.thread.stop()
      }
    } catch {
      // No thread can be created. Waiting is better than leaving everything open.
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
