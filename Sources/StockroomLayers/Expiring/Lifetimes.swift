import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Converts values with lifetimes to their stored form, and determines which have expired.
struct Lifetimes: Sendable {
  let time: ExpiryTime
  /// The lifetime of a value that is written without one of its own. Nil if such values never expire.
  let `default`: Duration?
  /// The description of the engine below, for error messages.
  let place: String?

  /// The stored form of a value that is written at that time. All values of a batch have the same time.
  func stored(_ data: Data, at time: Timestamp, expiringAfter lifetime: Duration?) -> Data {
    ExpiringValue.stored(
      data, lifetime.map { .init(written: time, expires: time.advanced(by: max(.zero, $0))) })
  }

  /// The operation, with the stored form of a value that is written at that time.
  func stored(_ operation: StorageOperation, at time: Timestamp, expiringAfter lifetime: Duration?)
    -> StorageOperation
  {
    guard case .write(let data, let key) = operation else { return operation }
    return .write(stored(data, at: time, expiringAfter: lifetime), key: key)
  }

  /// The entry, with the stored form of a value that is written at that time, with the default lifetime.
  func stored(_ entry: StorageEntry, at time: Timestamp) -> StorageEntry {
    var stored = entry
    stored.data = self.stored(entry.data, at: time, expiringAfter: `default`)
    return stored
  }

  /// The times of the value. Nil if it does not expire.
  func times(of stored: Data, key: CacheKey) throws -> ExpiringValue.Times? {
    try naming(place) { try ExpiringValue.times(of: stored, key: key) }
  }

  /// A check that uses the current time for all entries of one snapshot.
  func expiryCheck() -> ExpiryCheck { ExpiryCheck(lifetimes: self, now: time.now()) }

  /// Whether the value has expired by the clock alone, so that it may be removed.
  func hasExpired(_ stored: Data, key: CacheKey) throws -> Bool {
    guard let times = try times(of: stored, key: key) else { return false }
    return times.expires <= time.measured()
  }

  struct ExpiryCheck {
    /// How far ahead of the clock the time of a write may be for this layer to adopt it: a day. A time farther ahead is corrupted
    /// or comes from a clock that is wrong. If it were adopted, entries written afterwards would not expire until the clock reaches
    /// it.
    private static let farthestAhead = Duration.seconds(86_400)

    fileprivate let lifetimes: Lifetimes
    fileprivate let now: Timestamp

    func isExpired(_ times: ExpiringValue.Times?) -> Bool {
      guard let times else { return false }
      guard times.written > now else { return times.expires <= now }
      // The entry was written after this check began, perhaps by the same transaction; or the clock has been set back since; or it
      // was written by a machine whose clock is ahead. Later checks use the time of the write, if that is not too far ahead. This
      // one does not change its time.
      if times.written <= lifetimes.time.measured().advanced(by: Self.farthestAhead) {
        lifetimes.time.note(times.written)
      }
      return times.expires <= times.written
    }

    /// The value; nil if it has expired.
    func value(_ stored: Data, key: CacheKey) throws -> Data? {
      let value = try naming(lifetimes.place) { try ExpiringValue(stored, key: key) }
      return isExpired(value.times) ? nil : value.data
    }
  }
}
