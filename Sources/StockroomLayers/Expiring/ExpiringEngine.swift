public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Stores values that can expire. ``StockroomCore/StorageEngine/expiring(after:clock:)`` returns it.
///
/// An expired entry is absent for every call. Writing its key creates a new entry, with a new position in the order. The feed
/// reports the new entry to the writer too, so that a `Store` moves the item. For that, the layer first removes the expired entry,
/// and then runs the transaction again.
///
/// The space of expired entries is freed by later writes, and only then does the feed report them. On average, a write checks two
/// entries for each entry that it writes, and waits until they have been checked. It reads a page of at most 128 entries, and
/// removes the expired ones in a transaction. If the engine below has `orderedScans`, entries are checked in the byte order of
/// keys. If many tasks write at the same time, one write checks up to eight entries for each of its own, or a page, and leaves the
/// rest to later ones. ``removeExpired()`` checks all entries. Without the capability `transactions`, expired entries are removed
/// only when their keys are written again.
///
/// Within a process, time never goes backwards: setting the system clock back neither extends lifetimes nor restores entries;
/// setting it forward lets entries expire. After a restart, the time is at least the latest time of a write of the entries that
/// have been read, if that is at most a day ahead of the clock. Entries that expired after that time and have not been removed may
/// reappear if the clock was set back in the meantime. All reads of a call or a transaction use the time at which it began. An
/// entry that was written more than a day ahead of the clock, or whose time is corrupted, does not affect others, and exists until
/// the clock is close enough to its time. Entries are removed only once they have expired by the clock of this machine alone, or
/// when they are replaced.
///
/// Costs in addition to those of the engine below: a write reads the old value. It is a transaction if that value or the new one
/// expires, so that the lifetime begins when the write takes effect, no matter how long the write has waited. The old value is then
/// read within the transaction (for a batch, all old values with one request), while other writers wait. A value that does not
/// expire takes 1 more byte, one that does takes 17. ``keyExists(_:)`` and ``keysExist(_:)`` read values; ``keyCount()`` and
/// ``allKeys()`` read all values, and hold them in memory at once. A scan with a limit is repeated with a larger one if it
/// encounters expired entries.
public struct ExpiringEngine<Base: StorageEngine>: StorageLayer {
  /// The engine that keeps the values and their times.
  public let base: Base
  let lifetimes: Lifetimes
  let sweeper: ExpirySweeper<Base>

  init(base: Base, lifetime: Duration?, clock: ExpiryClock) {
    _ = registration
    self.base = base
    lifetimes = Lifetimes(time: ExpiryTime(clock), default: lifetime, place: StockroomLayers.place(of: base))
    sweeper = ExpirySweeper(base: base, lifetimes: lifetimes)
  }

  // MARK: Lifetimes

  /// Writes a value that expires after `lifetime`, or never if that is nil. The lifetime begins when the write takes effect or,
  /// without the capability `transactions`, when it is passed to the engine below. With a lifetime of zero or less, the value
  /// expires immediately.
  ///
  /// - Throws: as ``write(_:key:)``.
  public func write(_ data: Data, key: CacheKey, expiresAfter lifetime: Duration?) async throws {
    try await put([.write(data, key: key)], expiringAfter: lifetime)
  }

  /// Writes values that expire after `lifetime`, or never if that is nil, as one batch.
  ///
  /// - Throws: as ``write(_:)``.
  @concurrent public func write(
    _ dataAndKeys: [(key: CacheKey, data: Data)], expiresAfter lifetime: Duration?
  ) async throws {
    try await put(mapping(dataAndKeys) { .write($0.data, key: $0.key) }, expiringAfter: lifetime)
  }

  /// When the entry expires; nil if it never does, or there is none.
  ///
  /// Reads the whole value. Throws as `StorageEngine.read(key:)`, and `StorageError` with code `corrupted` if this layer has not
  /// stored the value.
  public func expiration(of key: CacheKey) async throws -> Date? {
    let check = lifetimes.expiryCheck()
    guard let stored = try await base.read(key: key) else { return nil }
    let times = try lifetimes.times(of: stored, key: key)
    return check.isExpired(times) ? nil : times?.expires.date
  }

  /// Removes every entry that has expired by the clock, in transactions of at most 128 entries. Reads every value.
  ///
  /// - Returns: The number of entries that were removed.
  /// - Throws: `StorageError` with code `unsupported` if the engine below has no transactions. With code `corrupted` if an entry is
  ///   corrupted, `permissionDenied` if it was encrypted with an unknown key, `unsupported` if it is compressed in a way that this
  ///   program does not support: the error of the first such entry is thrown after all others that the engine below can list have
  ///   been checked, and these entries stay. With the same codes if the engine below cannot list its keys. Otherwise as a read and
  ///   a write.
  @concurrent @discardableResult public func removeExpired() async throws -> Int {
    guard capabilities.contains(.transactions) else {
      throw StorageError(
        .unsupported, "Removing expired entries needs transactions, which a \(Base.self) does not have."
      )
    }
    var pass = ExpirySweeper<Base>.Pass()
    var removed = 0
    while !pass.isComplete {
      try Task.checkCancellation()
      removed += try await sweeper.step(&pass)
    }
    if let failure = pass.failure { throw failure }
    return removed
  }

  // MARK: Writing

  /// Writes a value with the lifetime of the layer.
  public func write(_ data: Data, key: CacheKey) async throws {
    try await write(data, key: key, expiresAfter: lifetimes.default)
  }

  /// Writes values with the lifetime of the layer, as one batch.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await write(dataAndKeys, expiresAfter: lifetimes.default)
  }

  /// Performs the operations as one batch, with the lifetime of the layer.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try await put(operations, expiringAfter: lifetimes.default)
  }

  /// Writes the entries with their timestamps, as one batch, with the lifetime of the layer. The lifetime begins with this write,
  /// whatever the timestamps are.
  ///
  /// If the engine below has the capability `preservesTimestamps` but no transactions, an entry that replaces an expired one keeps
  /// its position in the order.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    let old = try await timesOutside(of: entries.map(\.key), expiringAfter: lifetimes.default)
    if isTransaction(expiringAfter: lifetimes.default, replacing: old) {
      try await inTransaction { try $0.put(entries) }
    } else {
      let expired = expiredKeys(of: old)
      let now = lifetimes.time.now()
      let stored = try await mapping(entries) { lifetimes.stored($0, at: now) }
      if expired.isEmpty || capabilities.contains(.preservesTimestamps) {
        // Expired entries are not removed first: another engine may have renewed one in the meantime, and the write may fail.
        try await base.writeEntries(stored)
      } else {
        let removals = expired.map { StorageOperation.remove(key: $0) }
        let writes = stored.map { StorageOperation.write($0.data, key: $0.key) }
        try await withoutChangeOrigin { try await base.apply(removals + writes) }
      }
    }
    await sweeper.entriesWereWritten(entries.count)
  }

  private func put(_ operations: [StorageOperation], expiringAfter lifetime: Duration?) async throws {
    try operations.validate()
    let keys = operations.writtenKeys
    if keys.isEmpty { return try await base.apply(operations) }
    let old = try await timesOutside(of: keys, expiringAfter: lifetime)
    if isTransaction(expiringAfter: lifetime, replacing: old) {
      try await inTransaction { try $0.apply(operations, expiringAfter: lifetime) }
    } else {
      try await writeWithoutTransaction(operations, expiringAfter: lifetime, replacing: expiredKeys(of: old))
    }
    await sweeper.entriesWereWritten(keys.count)
  }

  /// The times of those entries that have a lifetime. Empty if the write is a transaction in any case: the transaction reads them
  /// itself, since they may have changed by then.
  private func timesOutside(
    of keys: [CacheKey], expiringAfter lifetime: Duration?
  ) async throws -> [CacheKey: ExpiringValue.Times] {
    isTransaction(expiringAfter: lifetime, replacing: [:]) ? [:] : try await times(of: keys)
  }

  /// Whether a write must be a transaction: it may have to wait for other writes. By the time it takes effect, an entry may have
  /// expired, and only then does its lifetime begin.
  private func isTransaction(
    expiringAfter lifetime: Duration?, replacing old: [CacheKey: ExpiringValue.Times]
  ) -> Bool {
    capabilities.contains(.transactions) && (lifetime != nil || !old.isEmpty)
  }

  /// The times of those entries that have a lifetime, whether or not they have expired.
  private func times(of keys: [CacheKey]) async throws -> [CacheKey: ExpiringValue.Times] {
    var times: [CacheKey: ExpiringValue.Times] = [:]
    if keys.count == 1 {
      times[keys[0]] = try await base.read(key: keys[0]).flatMap { try lifetimes.times(of: $0, key: keys[0]) }
      return times
    }
    for (key, stored) in try await base.readDataAndKeys(keys: keys) {
      times[key] = try lifetimes.times(of: stored, key: key)
    }
    return times
  }

  private func expiredKeys(of old: [CacheKey: ExpiringValue.Times]) -> [CacheKey] {
    let check = lifetimes.expiryCheck()
    return Array(old.filter { check.isExpired($0.value) }.keys)
  }

  private func writeWithoutTransaction(
    _ operations: [StorageOperation], expiringAfter lifetime: Duration?, replacing expired: [CacheKey]
  ) async throws {
    let removals = expired.map { StorageOperation.remove(key: $0) }
    let now = lifetimes.time.now()
    let stored =
      try await removals + mapping(operations) { lifetimes.stored($0, at: now, expiringAfter: lifetime) }
    if stored.count == 1, case .write(let data, let key) = stored[0] {
      try await base.write(data, key: key)
    } else if !expired.isEmpty {
      try await withoutChangeOrigin { try await base.apply(stored) }
    } else {
      try await base.apply(stored)
    }
  }

  // MARK: Reading

  /// Reads a value that has not expired.
  public func read(key: CacheKey) async throws -> Data? {
    let check = lifetimes.expiryCheck()
    return try await base.read(key: key).flatMap { try check.value($0, key: key) }
  }

  /// Reads the values that have not expired.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await readDataAndKeys(keys: keys).map(\.data)
  }

  /// Reads the values that have not expired.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await present { try await base.readDataAndKeys(keys: keys) }
  }

  /// Reads every value that has not expired.
  @concurrent public func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  /// Reads every value that has not expired.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await present { try await base.readAllDataAndKeys() }
  }

  /// Reads every entry that has not expired.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await present { try await base.readAllEntries() }
  }

  /// Reads the entries that have not expired.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await present { try await base.readEntries(keys: keys) }
  }

  /// Whether the key exists. Reads the value.
  public func keyExists(_ key: CacheKey) async throws -> Bool { try await read(key: key) != nil }

  /// The requested keys that exist. Reads the values.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await readDataAndKeys(keys: keys).map(\.key)
  }

  /// Reads every value. All values are in memory at once, so that the number is that of one snapshot.
  @concurrent public func keyCount() async throws -> Int { try await readAllDataAndKeys().count }

  /// Reads every value. All values are in memory at once, so that the keys are those of one snapshot.
  @concurrent public func allKeys() async throws -> [CacheKey] { try await readAllDataAndKeys().map(\.key) }

  /// The timestamp of the entry in the engine below. Reads the whole entry.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try await readEntries(keys: [key]).first?.createdAt
  }

  /// The timestamp of the entry in the engine below. Reads the whole entry.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try await readEntries(keys: [key]).first?.updatedAt
  }

  /// Reads the entries of a range that have not expired.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    guard let limit, limit > 0 else { return try await present { try await base.scan(range, limit: limit) } }
    var size = limit
    while true {
      var stored = 0
      let present = try await present {
        let page = try await base.scan(range, limit: size)
        stored = page.count
        return page
      }
      if present.count >= limit || stored < size { return Array(present.prefix(limit)) }
      size = size > .max / 2 ? .max : max(2 * size, 64)
    }
  }

  /// Verifies ``base``, then checks the times of every value, a page of entries at a time. All keys are in memory.
  @concurrent public func verify() async throws {
    try await base.verify()
    var cursor = EntryCursor(keys: try await base.allKeys())
    while !cursor.isAtEnd {
      for (key, stored) in try await cursor.next(of: base) { _ = try lifetimes.times(of: stored, key: key) }
    }
  }

  /// Returns the entries that had not expired when the read began, including those that have expired since. With the time after the
  /// read, an entry could count as expired although another write extended its lifetime during the read.
  private func present(
    _ read: () async throws -> [(key: CacheKey, data: Data)]
  ) async throws -> [(key: CacheKey, data: Data)] {
    let check = lifetimes.expiryCheck()
    return try await mapping(read()) { entry in
      try check.value(entry.data, key: entry.key).map { (key: entry.key, data: $0) }
    }.compactMap(\.self)
  }

  private func present(_ read: () async throws -> [StorageEntry]) async throws -> [StorageEntry] {
    let check = lifetimes.expiryCheck()
    return try await mapping(read()) { stored -> StorageEntry? in
      guard let data = try check.value(stored.data, key: stored.key) else { return nil }
      var entry = stored
      entry.data = data
      return entry
    }.compactMap(\.self)
  }
}

extension ExpiringEngine: ExpiringLayer {}

/// Registers the function by which modules that do not import this one recognize an ``ExpiringEngine``. Evaluated before the first
/// one exists.
private let registration: Void = ExpiringEntries.recognize { expires($0) }

extension [StorageOperation] {
  var writtenKeys: [CacheKey] { compactMap { if case .write(_, let key) = $0 { key } else { nil } } }
}

extension StorageEngine {
  /// This engine, with values that expire. See ``ExpiringEngine``.
  ///
  /// - Parameters:
  ///   - lifetime: The lifetime of an entry that is written without one of its own. It begins at the last write. Default: such
  ///     entries never expire.
  ///   - clock: The source of the current time.
  public func expiring(
    after lifetime: Duration? = nil, clock: ExpiryClock = .system
  ) -> ExpiringEngine<Self> {
    ExpiringEngine(base: self, lifetime: lifetime, clock: clock)
  }
}
