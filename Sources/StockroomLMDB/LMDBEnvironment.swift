import CLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An environment that its readers and its one writer share: it moves the map when that is needed and opens
/// LMDB anew when LMDB gives up.
final class LMDBEnvironment: @unchecked Sendable {
  // Safe to share: `handle` is replaced only by the thread that writes, while the readers are paused, and read
  // by that thread and by readers that have been counted in. `hasWritten` belongs to the thread that writes.
  // close() comes after everybody else, which the gates of the engines see to.

  /// The outcome of an attempt to read.
  enum Attempt<Value> {
    case value(Value)
    /// The map is being moved. Try again after ``LMDBReaders/untilResumed()``.
    case paused
    /// Try again after ``repair()``.
    case needsRepair
  }

  /// As in LMDB. A small map keeps small databases small.
  static let initialMapSize = 1 << 20
  /// What the addresses of a 64-bit process have room for, with much to spare.
  private static let maximumMapSize = 1 << 45

  let readers = LMDBReaders()
  private let directory: String
  private let identity: LMDBFile.Identity
  private var handle: Result<LMDBHandle, StorageError>
  private var hasWritten = false

  /// Opens the environment in the directory, whose `data.mdb` is this file.
  init(directory: String, identity: LMDBFile.Identity) throws {
    self.directory = directory
    self.identity = identity
    handle = .success(try Self.openHandle(directory: directory, identity: identity))
  }

  private static func openHandle(directory: String, identity: LMDBFile.Identity) throws -> LMDBHandle {
    let handle = try LMDBHandle(path: directory)
    var status = stat()
    guard fstat(handle.fileDescriptor, &status) == 0, LMDBFile.Identity(status) == identity else {
      mdb_env_close(handle.environment)
      throw StorageError(.io, "\(directory)/data.mdb was replaced while it was being opened.")
    }
    return handle
  }

  /// Closes everything. No call of any engine may be under way, and none may follow.
  func close() {
    guard case .success(let handle) = handle else { return }
    // The file is as good without.
    if hasWritten { try? handle.trimFile() }
    readers.drain()
    mdb_env_close(handle.environment)
    self.handle = .failure(StorageError(.closed, "The LMDB database in \(directory) has been closed."))
  }
}

// MARK: Reading

extension LMDBEnvironment {
  /// Lets `body` read one moment, if that is possible without waiting.
  func read<Value>(_ body: (LMDBSnapshot) throws -> Value) throws -> Attempt<Value> {
    guard case .reader(var idle) = readers.enter() else { return .paused }
    defer { readers.leave(idle) }
    do {
      let handle = try handle.get()
      let reader: LMDBReader
      do {
        reader = try handle.begin(&idle)
      } catch let error as LMDBError where Self.isRepairable(error) {
        return .needsRepair
      }
      defer { mdb_txn_reset(reader.transaction) }
      return .value(try body(LMDBSnapshot(transaction: reader.transaction, entries: handle.entries)))
    } catch {
      throw StorageError.fromTransaction(error, "Reading the LMDB database in \(directory) failed")
    }
  }

  private static func isRepairable(_ error: LMDBError) -> Bool {
    error.code == MDB_MAP_RESIZED || error.code == MDB_PANIC
  }
}

// MARK: Writing, on the one thread that does

extension LMDBEnvironment {
  /// Commits the requests as one transaction, or none of them.
  func commit(_ requests: [LMDBRequest]) throws {
    do {
      let size = requests.reduce(0) { $0 + $1.estimatedSize }
      // What turns out not to fit has been done for nothing. If there can be no more room, it may fit all the same.
      if try handle.get().unusedMap < size { try? makeRoom(forBytes: size) }
      var repairs = 0
      while true {
        do {
          return try commitOnce(requests)
        } catch let error as LMDBError where error.code == MDB_MAP_FULL {
          try makeRoom(forBytes: size)
        } catch let error as LMDBError where Self.isRepairable(error) && repairs < 3 {
          repairs += 1
          try repair()
        }
      }
    } catch {
      let error = explained(error, requests)
      // LMDB may have given up the environment, which readers need too. If it cannot be opened anew, they hear why.
      try? repair()
      throw StorageError.fromTransaction(error, "Writing the LMDB database in \(directory) failed")
    }
  }

  private func commitOnce(_ requests: [LMDBRequest]) throws {
    let handle = try handle.get()
    try handle.setDurability(requests.contains { $0.durability == .full } ? .full : .process)
    let transaction = try handle.beginWriting()
    do {
      hasWritten = true
      try handle.extendFile(to: handle.mapSize)
      var writer = try LMDBWriter(
        transaction: transaction, main: handle.main, entries: handle.entries, now: .now())
      try writer.perform(SortedBatch(joining: requests.map(\.operations)))
    } catch {
      mdb_txn_abort(transaction)
      throw error
    }
    try LMDBError.check(mdb_txn_commit(transaction))
  }

  /// LMDB reports a write that was cut short, which is what a disk does that becomes full on the way, as EIO.
  private func explained(_ error: any Error, _ requests: [LMDBRequest]) -> any Error {
    guard let error = error as? LMDBError, error.code == EIO, case .success(let handle) = handle,
      handle.hasLessRoom(than: requests.reduce(1 << 16) { $0 + $1.estimatedSize })
    else { return error }
    return LMDBError(code: ENOSPC)
  }

  /// Makes the map larger, so that the bytes fit in addition to what is there.
  private func makeRoom(forBytes bytes: Int) throws {
    let handle = try handle.get()
    if try handle.clearDeadReaders() { return }
    let old = handle.mapSize
    let needed = old + bytes + Self.initialMapSize
    guard needed <= Self.maximumMapSize else { throw LMDBError(code: MDB_MAP_FULL) }
    do {
      try growMap(of: handle, to: max(2 * old, needed))
    } catch  where needed < 2 * old {
      try growMap(of: handle, to: needed)
    }
  }

  private func growMap(of handle: LMDBHandle, to size: Int) throws {
    // Multiples of every size that a page can have.
    let size = (size + 0xFFFF) & ~0xFFFF
    try handle.checkAddresses(forMapOf: size)
    try handle.extendFile(to: size)
    moveMap(of: handle, to: max(size, try handle.fileSize()))
    _ = try self.handle.get()
  }

  private func moveMap(of handle: LMDBHandle, to size: Int) {
    readers.whilePaused {
      do {
        try handle.setMapSize(size)
      } catch {
        reopen(handle)
      }
    }
  }

  /// Makes the environment usable again, if it is not: because another process made the database larger than
  /// the map, or because LMDB gave the environment up after a failed write of a meta page.
  func repair() throws {
    let handle = try handle.get()
    let result = handle.probe()
    switch result {
    case MDB_SUCCESS, MDB_READERS_FULL: return
    case MDB_MAP_RESIZED: moveMap(of: handle, to: try handle.fileSize())
    case MDB_PANIC: readers.whilePaused { reopen(handle) }
    default:
      throw StorageError.lmdb(LMDBError(code: result), "Reading the LMDB database in \(directory) failed")
    }
    _ = try self.handle.get()
  }

  /// Closes LMDB's environment and opens it anew. Only while the readers are paused.
  private func reopen(_ handle: LMDBHandle) {
    readers.drain()
    mdb_env_close(handle.environment)
    do {
      self.handle = .success(try Self.openHandle(directory: directory, identity: identity))
    } catch let error as StorageError {
      self.handle = .failure(error)
    } catch {
      self.handle = .failure(
        StorageError(.io, "Opening the LMDB database in \(directory) failed", underlying: error))
    }
  }
}
