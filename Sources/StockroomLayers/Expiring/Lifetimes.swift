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

  /// The operations as they are stored, with the default lifetime.
  func stored(_ operation: StorageOperation) -> StorageOperation {
    guard case .write(let data, let key) = operation else { return operation }
    return .write(stored(data, livingFor: `default`), key: key)
  }

  /// The entry as it is stored, with the default lifetime.
  func stored(_ entry: StorageEntry) -> StorageEntry {
    var stored = entry
    stored.data = self.stored(entry.data, livingFor: `default`)
    return stored
  }

  /// A look at several entries at one moment.
  func look() -> Look { Look(time: time, place: place, now: time.now()) }

  /// Whether the value is there no longer.
  func isExpired(_ stored: Data, key: CacheKey) throws -> Bool {
    var look = look()
    return try look.isExpired(stored, key: key)
  }

  /// The value; nil if it is there no longer.
  func value(_ stored: Data, key: CacheKey) throws -> Data? {
    var look = look()
    return try look.value(stored, key: key)
  }

  struct Look {
    let time: ExpiryTime
    let place: String?
    private(set) var now: Timestamp

    mutating func isExpired(_ times: ExpiringValue.Times?) -> Bool {
      guard let times else { return false }
      if times.written > now {
        // The clock has been set back since, or another machine's is ahead.
        time.note(times.written)
        now = times.written
      }
      return times.expires <= now
    }

    /// The times of the value; nil if it does not expire.
    func times(of stored: Data, key: CacheKey) throws -> ExpiringValue.Times? {
      try naming(place) { try ExpiringValue.times(of: stored, key: key) }
    }

    /// Whether the value is there no longer.
    mutating func isExpired(_ stored: Data, key: CacheKey) throws -> Bool {
      isExpired(try times(of: stored, key: key))
    }

    /// The value; nil if it is there no longer.
    mutating func value(_ stored: Data, key: CacheKey) throws -> Data? {
      let value = try naming(place) { try ExpiringValue(stored, key: key) }
      return isExpired(value.times) ? nil : value.data
    }
  }
}
