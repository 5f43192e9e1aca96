import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What all engines of a process that are open on the same place share.
final class LMDBPlace: Sendable {
  let environment: LMDBEnvironment
  let identity: LMDBFile.Identity
  let thread = OwnThread()
  let committer: GroupCommitter<LMDBRequest>

  fileprivate init(environment: LMDBEnvironment, identity: LMDBFile.Identity) {
    self.environment = environment
    self.identity = identity
    committer = GroupCommitter(on: thread) { try environment.commit($0) }
  }

  /// Lets `body` read one moment, on the thread of the caller.
  func read<Value>(_ body: (LMDBSnapshot) throws -> Value) async throws -> Value {
    while true {
      switch try environment.read(body) {
      case .value(let value): return value
      case .paused: await environment.readers.untilResumed()
      case .needsRepair: try await thread.run { [environment] in try environment.repair() }
      }
    }
  }
}

/// The places that are open in this process, so that no environment is ever opened twice.
///
/// A place is known by the device and inode number of its `data.mdb`, so that no symbolic link and no other
/// spelling of the path makes a second one of it. The lock is held while a place is opened or closed: whoever
/// opens it at that moment waits.
enum LMDBRegistry {
  private struct Entry {
    let place: LMDBPlace
    var users: Int
  }

  private static let entries = Guarded<[LMDBFile.Identity: Entry]>([:])

  /// The place in the directory, opened if it is not yet. Every call is matched by one of ``release(_:)``.
  static func place(in directory: FileManager.Directory) throws -> LMDBPlace {
    try entries.withLock { entries in
      while true {
        let file = try LMDBFile(directory: directory)
        if let entry = entries[file.identity] {
          entries[file.identity]?.users += 1
          return entry.place
        }
        // False if somebody has just put another file in its place.
        guard try file.lock() else { continue }
        try file.validateHeader()
        let environment = try LMDBEnvironment(directory: file.directory, identity: file.identity)
        let place = LMDBPlace(environment: environment, identity: file.identity)
        entries[file.identity] = Entry(place: place, users: 1)
        return place
      }
    }
  }

  /// Counts a user out. Closes the place after the last one.
  ///
  /// - Returns: Whether it was the last one, who has to stop the thread of the place.
  static func release(_ place: LMDBPlace) -> Bool {
    entries.withLock { entries in
      guard let users = entries[place.identity]?.users else { return false }
      if users > 1 {
        entries[place.identity]?.users -= 1
        return false
      }
      place.environment.close()
      entries[place.identity] = nil
      return true
    }
  }
}
