import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What is stored for values that live for a time, and which of them are still there.
struct Lifetimes: Sendable {
  let time: ExpiryTime
  /// How long a value lives whose writer does not say; nil if for ever.
  let `default`: Duration?
  /// Where the values are, for errors.
  let place: String?

  /// What is stored for a value that is written at that time, which is the same for all values of a batch.
  func stored(_ data: Data, at time: Timestamp, livingFor lifetime: Duration?) -> Data {
    ExpiringValue.stored(
      data, lifetime.map { .init(written: time, expires: time.advanced(by: max(.zero, $0))) })
  }

  /// The operation as it is stored at that time.
  func stored(_ operation: StorageOperation, at time: Timestamp, livingFor lifetime: Duration?)
    -> StorageOperation
  {
    guard case .write(let data, let key) = operation else { return operation }
    return .write(stored(data, at: time, livingFor: lifetime), key: key)
  }

  /// The entry as it is stored at that time, with the default lifetime.
  func stored(_ entry: StorageEntry, at time: Timestamp) -> StorageEntry {
    var stored = entry
    stored.data = self.stored(entry.data, at: time, livingFor: `default`)
    return stored
  }

  /// The times of the value; nil if it does not expire.
  func times(of stored: Data, key: CacheKey) throws -> ExpiringValue.Times? {
    try naming(place) { try ExpiringValue.times(of: stored, key: key) }
  }

  /// A look at several entries of one snapshot, all of them at the same moment.
  func look() -> Look { Look(lifetimes: self, now: time.now()) }

  /// Whether the value has expired by the clock alone, so that it may be removed.
  func isOver(_ stored: Data, key: CacheKey) throws -> Bool {
    guard let times = try times(of: stored, key: key) else { return false }
    return times.expires <= time.measured()
  }

  struct Look {
    /// How far ahead of the clock an entry may have been written to say what time it is: a day. What is farther ahead is corrupted, or of a
    /// clock that is wrong, and every entry that was written by such a time would be stored for as long.
    private static let farthestAhead = Duration.seconds(86_400)

    fileprivate let lifetimes: Lifetimes
    fileprivate let now: Timestamp

    func isExpired(_ times: ExpiringValue.Times?) -> Bool {
      guard let times else { return false }
      guard times.written > now else { return times.expires <= now }
      // Written since this look began, perhaps by the transaction that looks; or the clock has been set back since, or another machine's is
      // ahead, which later looks take into account. The moment of this one stays the same.
      if times.written <= lifetimes.time.measured().advanced(by: Self.farthestAhead) {
        lifetimes.time.note(times.written)
      }
      return times.expires <= times.written
    }

    /// The value; nil if it is there no longer.
    func value(_ stored: Data, key: CacheKey) throws -> Data? {
      let value = try naming(lifetimes.place) { try ExpiringValue(stored, key: key) }
      return isExpired(value.times) ? nil : value.data
    }
  }
}
