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
    let reserves = contents.lastSequence >= contents.reservedSequence
    let reserved = contents.reservedSequence
    if reserves { contents.reservedSequence = contents.lastSequence + Self.clockReserve }
    try state.write(contents)
    if reserves {
      do {
        try synchronize(state.file)
      } catch {
        // Who reads the new limit takes it for one that is on the disk.
        contents.reservedSequence = reserved
        do { try state.write(contents) } catch let failure { fail(with: failure) }
        throw error
      }
    }
    hasMovedClock.store(true, ordering: .relaxed)
    return boundary
  }
}
