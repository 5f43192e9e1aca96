import StockroomCore
import Synchronization

// The numbers that order creations.
extension DiskConnection {
  /// How many numbers are reserved at a time, with one sync of the new limit. Since a number is at least the time in nanoseconds,
  /// this is a minute.
  private static let sequenceReserve: UInt64 = 60_000_000_000

  /// Reserves numbers in the order of creation: the one that is returned, and `count` after it.
  ///
  /// They increase across all engines, regardless of the system's clock and of crashes of the machine.
  ///
  /// - Parameter synchronize: Syncs the file with the limit up to which numbers may be used.
  func reserveSequenceNumbers(
    _ count: Int, at now: Timestamp, synchronize: (FileDescriptor) throws -> Void = { try $0.synchronize() }
  ) throws -> UInt64 {
    var contents = try state.read()
    if !hasReservedNumbers.load(ordering: .relaxed) {
      // Numbers that were used just before a crash of the machine may not be on the disk, but their limit is.
      contents.lastSequence = max(contents.lastSequence, contents.reservedSequence)
    }
    let boundary = max(contents.lastSequence + 1, UInt64(max(0, now.nanoseconds)))
    contents.lastSequence = boundary + UInt64(count)
    let reserved = contents.reservedSequence
    if contents.lastSequence >= reserved {
      contents.reservedSequence = contents.lastSequence + Self.sequenceReserve
    }
    guard contents.reservedSequence < UInt64(Int64.max) else {
      throw StorageError(
        .io, "\(state.file.path) has no more numbers for entries. Is the system's clock right?")
    }
    try state.write(contents)
    // Another engine may have written this limit and died before it was synced.
    if contents.reservedSequence != syncedReserve.load(ordering: .relaxed) {
      do {
        try synchronize(state.file)
      } catch {
        // Numbers up to a limit that is not on the disk must not be used.
        contents.reservedSequence = reserved
        do { try state.write(contents) } catch let failure { fail(with: failure) }
        throw error
      }
      syncedReserve.store(contents.reservedSequence, ordering: .relaxed)
    }
    hasReservedNumbers.store(true, ordering: .relaxed)
    return boundary
  }
}
