import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A transaction of the engine below, without the entries that have expired.
final class ExpiringTransaction: BulkReadingTransaction {
  private let base: any StorageTransaction
  private let lifetimes: Lifetimes
  /// All reads of the body use the time at which it began. The lifetime of a value begins when it is written.
  private let check: Lifetimes.ExpiryCheck
  private(set) var writeCount = 0
  /// The keys of the expired entries that have been replaced by new ones.
  private(set) var replacedExpired: [CacheKey] = []

  init(base: any StorageTransaction, lifetimes: Lifetimes) {
    (self.base, self.lifetimes, check) = (base, lifetimes, lifetimes.expiryCheck())
  }

  func read(key: CacheKey) throws -> Data? {
    try base.read(key: key).flatMap { try check.value($0, key: key) }
  }

  func read(keys: [CacheKey]) throws -> [Data] { try readValues(of: keys).compactMap(\.self) }

  func readValues(of keys: [CacheKey]) throws -> [Data?] {
    try zip(keys, base.values(of: keys)).map { key, stored in
      try stored.flatMap { try check.value($0, key: key) }
    }
  }

  func keyExists(_ key: CacheKey) throws -> Bool { try read(key: key) != nil }

  func keyCount() throws -> Int { try scan(.all, limit: nil).count }

  func allKeys() throws -> [CacheKey] { try scan(.all, limit: nil).map(\.key) }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    var (range, present) = (range, [(key: CacheKey, data: Data)]())
    let limit = limit.map { max(0, $0) }
    var size = limit
    while true {
      let page = try base.scan(range, limit: size)
      for (key, stored) in page {
        if let data = try check.value(stored, key: key) { present.append((key, data)) }
      }
      guard let limit, let full = size, let last = page.last?.key, page.count >= full, present.count < limit
      else { return Array(present.prefix(limit ?? .max)) }
      range.after = last
      // If many have expired, a page as small as the number of missing entries would mean one scan for each.
      size = full > .max / 2 ? .max : max(2 * full, 64)
    }
  }

  func write(_ data: Data, key: CacheKey) throws {
    try key.validate()
    try replaceIfExpired([key])
    try store(data, key: key, at: lifetimes.time.now(), expiringAfter: lifetimes.default)
  }

  func writeEntry(_ entry: StorageEntry) throws {
    try entry.key.validate()
    try replaceIfExpired([entry.key])
    try store(entry, at: lifetimes.time.now())
  }

  /// Performs the operations. A write under the key of an expired entry creates a new entry, with a new position in the order.
  func apply(_ operations: [StorageOperation], expiringAfter lifetime: Duration?) throws {
    try replaceIfExpired(operations.writtenKeys)
    let now = lifetimes.time.now()
    for operation in operations {
      switch operation {
      case .write(let data, let key): try store(data, key: key, at: now, expiringAfter: lifetime)
      case .remove(let key): try base.remove(key: key)
      case .removeAll: try base.removeAll()
      }
    }
  }

  /// Writes the entries like ``apply(_:expiringAfter:)``, with their timestamps and the default lifetime.
  func put(_ entries: [StorageEntry]) throws {
    try replaceIfExpired(entries.map(\.key))
    let now = lifetimes.time.now()
    for entry in entries { try store(entry, at: now) }
  }

  private func store(
    _ data: Data, key: CacheKey, at time: Timestamp, expiringAfter lifetime: Duration?
  ) throws {
    try base.write(lifetimes.stored(data, at: time, expiringAfter: lifetime), key: key)
    writeCount += 1
  }

  private func store(_ entry: StorageEntry, at time: Timestamp) throws {
    try base.writeEntry(lifetimes.stored(entry, at: time))
    writeCount += 1
  }

  /// Removes those of the entries that have expired, before they are written. Reads all of them with one request, even if they have
  /// been read before the transaction: while that waited, another write may have renewed them with a shorter lifetime.
  private func replaceIfExpired(_ keys: [CacheKey]) throws {
    let check = lifetimes.expiryCheck()
    var seen: Set<CacheKey> = []
    for (key, stored) in zip(keys, try base.values(of: keys)) where seen.insert(key).inserted {
      guard let stored else { continue }
      let times = try lifetimes.times(of: stored, key: key)
      if check.isExpired(times) {
        try base.remove(key: key)
        replacedExpired.append(key)
      }
    }
  }

  func remove(key: CacheKey) throws { try base.remove(key: key) }

  func removeAll() throws { try base.removeAll() }
}
