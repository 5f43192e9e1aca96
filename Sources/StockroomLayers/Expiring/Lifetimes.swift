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

  /// What is stored for a value that is written now.
  func stored(_ data: Data, livingFor lifetime: Duration?) -> Data {
    guard let lifetime else { return ExpiringValue.stored(data, nil) }
    let now = time.now()
    return ExpiringValue.stored(
      data, .init(written: now, expires: now.advanced(by: max(.zero, lifetime))))
  }

  /// The operation as it is stored now.
  func stored(_ operation: StorageOperation, livingFor lifetime: Duration?) -> StorageOperation {
    guard case .write(let data, let key) = operation else { return operation }
    return .write(stored(data, livingFor: lifetime), key: key)
  }

  /// The entry as it is stored now, with the default lifetime.
  func stored(_ entry: StorageEntry) -> StorageEntry {
    var stored = entry
    stored.data = self.stored(entry.data, livingFor: `default`)
    return stored
  }

  /// The times of the value; nil if it does not expire.
  func times(of stored: Data, key: CacheKey) throws -> ExpiringValue.Times? {
    try naming(place) { try ExpiringValue.times(of: stored, key: key) }
  }

  /// A look at several entries of one snapshot.
  func look() -> Look { Look(lifetimes: self, now: time.now()) }

  /// Whether a value with these times is there no longer.
  func isExpired(_ times: ExpiringValue.Times?) -> Bool {
    var look = look()
    return look.isExpired(times)
  }

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
    fileprivate var now: Timestamp

    mutating func isExpired(_ times: ExpiringValue.Times?) -> Bool {
      guard let times else { return false }
      if times.written > now {
        // Since this look began, perhaps by the transaction that looks: its moment stays the same.
        if times.written <= lifetimes.time.now() { return times.expires <= times.written }
        guard times.written <= lifetimes.time.measured().advanced(by: Self.farthestAhead) else {
          // It decides about itself alone.
          return times.expires <= times.written
        }
        // The clock has been set back since, or another machine's is ahead.
        lifetimes.time.note(times.written)
        now = times.written
      }
      return times.expires <= now
    }

    /// The value; nil if it is there no longer.
    mutating func value(_ stored: Data, key: CacheKey) throws -> Data? {
      let value = try naming(lifetimes.place) { try ExpiringValue(stored, key: key) }
      return isExpired(value.times) ? nil : value.data
    }
  }
}
