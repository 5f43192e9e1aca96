import StockroomCore
import Synchronization

// The numbers that order creations.
extension DiskConnection {
  /// For how long the clock may run before its new limit has to be synced.
  private static let clockReserve: UInt64 = 60_000_000_000

  /// Sets numbers in the order of creation aside: the one that is returned, and `count` after it.
  ///
  /// They grow from one to the next over all engines and whatever happens to the system's clock or the machine.
  ///
  /// - Parameter synchronize: Puts the file on the disk with the limit up to which numbers may be given out.
  func moveClock(
    to now: Timestamp, by count: Int, synchronize: (FileDescriptor) throws -> Void = { try $0.synchronize() }
  ) throws -> UInt64 {
    var contents = try state.read()
    if !hasMovedClock.load(ordering: .relaxed) {
      // Numbers that were given out just before the machine died need not be on the disk; their limit is.
      contents.lastSequence = max(contents.lastSequence, contents.reservedSequence)
    }
    let boundary = max(contents.lastSequence + 1, UInt64(max(0, now.nanoseconds)))
    contents.lastSequence = boundary + UInt64(count)
    let reserved = contents.reservedSequence
    if contents.lastSequence >= reserved {
      contents.reservedSequence = contents.lastSequence + Self.clockReserve
    }
    guard contents.reservedSequence < UInt64(Int64.max) else {
      throw StorageError(
        .io, "\(state.file.path) has no more numbers for entries. Is the system's clock right?")
    }
    try state.write(contents)
    // An engine that has written this limit may have died before it was on the disk.
    if contents.reservedSequence != syncedReserve.load(ordering: .relaxed) {
      do {
        try synchronize(state.file)
      } catch {
        // Numbers up to it must not be given out.
        contents.reservedSequence = reserved
        do { try state.write(contents) } catch let failure { fail(with: failure) }
        throw error
      }
      syncedReserve.store(contents.reservedSequence, ordering: .relaxed)
    }
    hasMovedClock.store(true, ordering: .relaxed)
    return boundary
  }
}
