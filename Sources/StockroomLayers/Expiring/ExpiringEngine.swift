public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Stores values that can expire. ``StockroomCore/StorageEngine/expiring(after:clock:)`` returns it.
///
/// An expired entry is absent for every call. Writing its key creates a new entry, which the feed reports to the writer too, so that a
/// `Store` moves it to its new position; for that the transaction is made twice.
///
/// The space of expired entries is freed by later writes, and only then does the feed report the entry: each write checks two entries for
/// each entry that it writes, in the order of keys, in small transactions, which the write waits for. If many tasks write at once, one write
/// checks up to eight entries for each of its own, or 128, and leaves the rest to later ones. ``removeExpired()`` checks all entries.
/// Without the capability `transactions`, expired entries are removed only when their keys are written again.
///
/// Time never goes backwards: setting the system clock back neither prolongs a lifetime nor restores an entry; setting it forward lets
/// entries expire. After a restart of the program, the time is at least that at which any of the entries that have been read was written, if that
/// is at most a day ahead of the clock; a call or a transaction judges everything that it reads by the moment at which it began. Entries that expired after that time and have not been removed may reappear if the clock was set back
/// in the meantime. An entry that was written at a later time than that, when the clock was years ahead, or whose time is corrupted, does not
/// affect others, and exists until the clock is close enough to its time. Entries are removed only once they have expired by the clock of
/// this machine alone.
///
/// Costs in addition to those of the engine below: a write reads the old value, and is a transaction if that value or the new one
/// expires, so that the lifetime begins when the write takes effect, no matter how long it has waited. It then reads within the transaction
/// (a batch reads all values with one request), for which other writers wait. A value that does not expire takes 1 more byte, one
/// that does takes 17. ``keyExists(_:)`` and ``keysExist(_:)`` read values; ``keyCount()`` and ``allKeys()`` read all values, which are then
/// in memory together. A scan with a limit is repeated with a larger one if it encounters expired entries.
public struct ExpiringEngine<Base: StorageEngine>: StorageLayer {
  /// The engine that keeps the values and their times.
  public let base: Base
  let lifetimes: Lifetimes
  let sweeper: ExpirySweeper<Base>

  init(base: Base, lifetime: Duration?, clock: ExpiryClock) {
    _ = recognition
    self.base = base
    lifetimes = Lifetimes(time: ExpiryTime(clock), default: lifetime, place: StockroomLayers.place(of: base))
    sweeper = ExpirySweeper(base: base, lifetimes: lifetimes)
  }

  // MARK: Lifetimes

  /// Writes a value that expires after `lifetime`, or never if that is nil. It counts from when the write takes effect, and one of zero or
  /// less is over at once. Without the capability `transactions` it counts from the call.
  ///
  /// - Throws: as ``write(_:key:)``.
  public func write(_ data: Data, key: CacheKey, expiresAfter lifetime: Duration?) async throws {
    try await put([.write(data, key: key)], livingFor: lifetime)
  }

  /// Writes values that expire after `lifetime`, or never if that is nil, as one batch.
  ///
  /// - Throws: as ``write(_:)``.
  @concurrent public func write(
    _ dataAndKeys: [(key: CacheKey, data: Data)], expiresAfter lifetime: Duration?
  ) async throws {
    try await put(mapping(dataAndKeys) { .write($0.data, key: $0.key) }, livingFor: lifetime)
  }

  /// When the entry expires; nil if it never does, or there is none.
  ///
  /// Costs a read of the whole value. Throws as `StorageEngine.read(key:)`; `StorageError` with code `corrupted` too if this layer has not
  /// stored the value.
  public func expiration(of key: CacheKey) async throws -> Date? {
    let look = lifetimes.look()
    guard let stored = try await base.read(key: key) else { return nil }
    let times = try lifetimes.times(of: stored, key: key)
    return look.isExpired(times) ? nil : times?.expires.date
  }

  /// Removes every entry whose time is over by the clock, in transactions of at most 128 entries. Reads every value.
  ///
  /// - Returns: How many were removed.
  /// - Throws: `StorageError` with code `unsupported` if the engine below has no transactions; with code `corrupted` if an entry is,
  ///   `permissionDenied` if one was encrypted with a key that is not known, or `unsupported` if one is compressed in a way that this
  ///   program does not support: such an entry stays, and is reported after all others that the engine below can list have been looked at.
  ///   The same if it cannot list its keys; otherwise as a read and a write.
  @concurrent @discardableResult public func removeExpired() async throws -> Int {
    guard capabilities.contains(.transactions) else {
      throw StorageError(
        .unsupported, "Removing expired entries needs transactions, which a \(Base.self) does not have."
      )
    }
    var pass = ExpirySweeper<Base>.Pass()
    var removed = 0
    while !pass.isOver {
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

  /// Does the operations as one batch, with the lifetime of the layer.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try await put(operations, livingFor: lifetimes.default)
  }

  /// Writes the entries with their times, as one batch, and with the lifetime of the layer: it counts from now.
  ///
  /// An engine below that stores these times and has no transactions keeps the place in the order of an entry that has expired.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    let old = try await timesOutside(of: entries.map(\.key), livingFor: lifetimes.default)
    if isTransaction(livingFor: lifetimes.default, replacing: old) {
      try await inTransaction { try $0.put(entries) }
    } else {
      let expired = expiredKeys(of: old)
      let now = lifetimes.time.now()
      let stored = try await mapping(entries) { lifetimes.stored($0, at: now) }
      if expired.isEmpty || capabilities.contains(.preservesTimestamps) {
        // Nothing is removed first: another engine may have renewed it meanwhile, and this may fail.
        try await base.writeEntries(stored)
      } else {
        let removals = expired.map { StorageOperation.remove(key: $0) }
        let writes = stored.map { StorageOperation.write($0.data, key: $0.key) }
        try await asNobodysChange { try await base.apply(removals + writes) }
      }
    }
    await sweeper.entriesWereWritten(entries.count)
  }

  private func put(_ operations: [StorageOperation], livingFor lifetime: Duration?) async throws {
    try operations.validate()
    let keys = operations.writtenKeys
    if keys.isEmpty { return try await base.apply(operations) }
    let old = try await timesOutside(of: keys, livingFor: lifetime)
    if isTransaction(livingFor: lifetime, replacing: old) {
      try await inTransaction { try $0.apply(operations, livingFor: lifetime) }
    } else {
      try await writeWithoutTransaction(operations, livingFor: lifetime, replacing: expiredKeys(of: old))
    }
    await sweeper.entriesWereWritten(keys.count)
  }

  /// The times of those entries that expire; none for a write that is a transaction anyway, which reads them itself: by then they may be others.
  private func timesOutside(
    of keys: [CacheKey], livingFor lifetime: Duration?
  ) async throws -> [CacheKey: ExpiringValue.Times] {
    isTransaction(livingFor: lifetime, replacing: [:]) ? [:] : try await times(of: keys)
  }

  /// Whether a write has to be a transaction: it may wait for others, and an entry may have expired by then, and a lifetime begins only then.
  private func isTransaction(
    livingFor lifetime: Duration?, replacing old: [CacheKey: ExpiringValue.Times]
  ) -> Bool {
    capabilities.contains(.transactions) && (lifetime != nil || !old.isEmpty)
  }

  /// The times of those entries that expire, whether or not theirs is over.
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
    let look = lifetimes.look()
    return Array(old.filter { look.isExpired($0.value) }.keys)
  }

  private func writeWithoutTransaction(
    _ operations: [StorageOperation], livingFor lifetime: Duration?, replacing expired: [CacheKey]
  ) async throws {
    let removals = expired.map { StorageOperation.remove(key: $0) }
    let now = lifetimes.time.now()
    let stored =
      try await removals + mapping(operations) { lifetimes.stored($0, at: now, livingFor: lifetime) }
    if stored.count == 1, case .write(let data, let key) = stored[0] {
      try await base.write(data, key: key)
    } else if !expired.isEmpty {
      try await asNobodysChange { try await base.apply(stored) }
    } else {
      try await base.apply(stored)
    }
  }

  // MARK: Reading

  /// Reads a value whose time is not over.
  public func read(key: CacheKey) async throws -> Data? {
    let look = lifetimes.look()
    return try await base.read(key: key).flatMap { try look.value($0, key: key) }
  }

  /// Reads the values whose time is not over.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await readDataAndKeys(keys: keys).map(\.data)
  }

  /// Reads the values whose time is not over.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await present { try await base.readDataAndKeys(keys: keys) }
  }

  /// Reads every value whose time is not over.
  @concurrent public func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  /// Reads every value whose time is not over.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await present { try await base.readAllDataAndKeys() }
  }

  /// Reads every entry whose time is not over.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await present { try await base.readAllEntries() }
  }

  /// Reads the entries whose time is not over.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await present { try await base.readEntries(keys: keys) }
  }

  /// Reads the value.
  public func keyExists(_ key: CacheKey) async throws -> Bool { try await read(key: key) != nil }

  /// Reads the values.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await readDataAndKeys(keys: keys).map(\.key)
  }

  /// Reads every value, all of which are in memory together: the number is that of one snapshot.
  @concurrent public func keyCount() async throws -> Int { try await readAllDataAndKeys().count }

  /// Reads every value, all of which are in memory together: the keys are those of one snapshot.
  @concurrent public func allKeys() async throws -> [CacheKey] { try await readAllDataAndKeys().map(\.key) }

  /// The time of the entry below. Reads the entry.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try await readEntries(keys: [key]).first?.createdAt
  }

  /// The time of the entry below. Reads the entry.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try await readEntries(keys: [key]).first?.updatedAt
  }

  /// The entries of a range whose time is not over.
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

  /// Has the engine below verify what it stores, then looks at the time of every value, a page of entries at a time. All keys are in memory.
  @concurrent public func verify() async throws {
    try await base.verify()
    var cursor = EntryCursor(keys: try await base.allKeys())
    while !cursor.isAtEnd {
      for (key, stored) in try await cursor.next(of: base) { _ = try lifetimes.times(of: stored, key: key) }
    }
  }

  /// What is read and not over at the moment before. By the moment after it, an entry might be over that has been renewed meanwhile. What
  /// expires in between is still there, also beside what others have written since.
  private func present(
    _ read: () async throws -> [(key: CacheKey, data: Data)]
  ) async throws -> [(key: CacheKey, data: Data)] {
    let look = lifetimes.look()
    return try await mapping(read()) { entry in
      try look.value(entry.data, key: entry.key).map { (key: entry.key, data: $0) }
    }.compactMap(\.self)
  }

  private func present(_ read: () async throws -> [StorageEntry]) async throws -> [StorageEntry] {
    let look = lifetimes.look()
    return try await mapping(read()) { stored -> StorageEntry? in
      guard let data = try look.value(stored.data, key: stored.key) else { return nil }
      var entry = stored
      entry.data = data
      return entry
    }.compactMap(\.self)
  }
}

extension ExpiringEngine: ExpiringLayer {}

/// What is in other modules learns, before there is such an engine, which engines are or have one.
private let recognition: Void = ExpiringEntries.recognize { expires($0) }

extension [StorageOperation] {
  var writtenKeys: [CacheKey] { compactMap { if case .write(_, let key) = $0 { key } else { nil } } }
}

extension StorageEngine {
  /// This engine, with values that expire. See ``ExpiringEngine``.
  ///
  /// - Parameters:
  ///   - lifetime: How long an entry lives that is written without another lifetime. It counts from the last write. Default: for ever.
  ///   - clock: What time it is.
  public func expiring(
    after lifetime: Duration? = nil, clock: ExpiryClock = .system
  ) -> ExpiringEngine<Self> {
    ExpiringEngine(base: self, lifetime: lifetime, clock: clock)
  }
}
