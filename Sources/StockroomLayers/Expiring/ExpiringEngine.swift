public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Stores values for a time: what ``StockroomCore/StorageEngine/expiring(after:clock:)`` returns.
///
/// An entry whose time is over is absent for every call, and writing its key makes a new entry. What it takes in the place is
/// freed as writes go by: for each entry that is written two are looked at, in the order of keys, in small transactions. That is when the
/// feed reports the entry. ``removeExpired()`` looks at all of them. Without the capability `transactions` nothing is removed but
/// what is written again.
///
/// Time never goes back: a system clock that is set back prolongs no life, and brings nothing back. One that is set forward ends lives. After
/// another start of the program it is at least as late as when any of the entries that are read was written; what expired
/// after that, and has not been removed, may be seen again if the clock was set back meanwhile.
///
/// Costs beside those of the engine below: a write reads the old value, and 1 byte is stored with a value that is kept, 17 with one that
/// expires. ``keyCount()``, ``allKeys()``, ``keyExists(_:)`` and ``keysExist(_:)`` read values. A scan with a limit that meets expired
/// entries is repeated with a larger one.
public struct ExpiringEngine<Base: StorageEngine>: StorageLayer {
  /// The engine that keeps the values and their times.
  public let base: Base
  let lifetimes: Lifetimes
  private let sweeper: ExpirySweeper<Base>

  init(base: Base, lifetime: Duration?, clock: ExpiryClock) {
    self.base = base
    lifetimes = Lifetimes(time: ExpiryTime(clock), default: lifetime, place: StockroomLayers.place(of: base))
    sweeper = ExpirySweeper(base: base, lifetimes: lifetimes)
  }

  // MARK: Lifetimes

  /// Writes a value that expires after `lifetime`, or never if that is nil. It counts from the write, and one of zero or less is over at
  /// once.
  ///
  /// - Throws: as ``write(_:key:)``.
  public func write(_ data: Data, key: CacheKey, expiresAfter lifetime: Duration?) async throws {
    try key.validate()
    try await put([.write(lifetimes.stored(data, livingFor: lifetime), key: key)])
  }

  /// Writes values that expire after `lifetime`, or never if that is nil, as one batch.
  ///
  /// - Throws: as ``write(_:)``.
  @concurrent public func write(
    _ dataAndKeys: [(key: CacheKey, data: Data)], expiresAfter lifetime: Duration?
  ) async throws {
    try await put(
      mapping(dataAndKeys) { .write(lifetimes.stored($0.data, livingFor: lifetime), key: $0.key) })
  }

  /// When the entry expires; nil if it never does, or there is none. Reads the value.
  public func expiration(of key: CacheKey) async throws -> Date? {
    guard let stored = try await base.read(key: key) else { return nil }
    var look = lifetimes.look()
    let times = try look.times(of: stored, key: key)
    return look.isExpired(times) ? nil : times?.expires.date
  }

  /// Removes every entry whose time is over, in transactions of at most 128 entries. Reads every value.
  ///
  /// - Returns: How many were removed.
  /// - Throws: `StorageError` with code `unsupported` if the engine below has no transactions; otherwise as a read and a write.
  @concurrent @discardableResult public func removeExpired() async throws -> Int {
    var pass = ExpirySweeper<Base>.Pass()
    var removed = 0
    while !pass.isOver {
      try Task.checkCancellation()
      removed += try await sweeper.step(&pass)
    }
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
    try await put(mapping(operations) { lifetimes.stored($0) })
  }

  /// Writes the entries with their times, as one batch, and with the lifetime of the layer: it counts from now.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    let stored = try await mapping(entries) { lifetimes.stored($0) }
    let expired = try await expiredKeys(of: entries.map(\.key))
    if expired.isEmpty {
      try await base.writeEntries(stored)
    } else if capabilities.contains(.transactions) {
      // What is written in their place are new entries.
      try await base.withTransaction { [lifetimes] base in
        let transaction = ExpiringTransaction(base: base, lifetimes: lifetimes)
        for entry in stored { try transaction.put(entry) }
      }
    } else {
      try await base.remove(keys: expired)
      try await base.writeEntries(stored)
    }
    await sweeper.entriesWereWritten(entries.count)
  }

  private func put(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    let keys = operations.compactMap { if case .write(_, let key) = $0 { key } else { nil } }
    let expired = try await expiredKeys(of: keys)
    if !expired.isEmpty {
      try await replace(expired, by: operations)
    } else if operations.count == 1, case .write(let data, let key) = operations[0] {
      try await base.write(data, key: key)
    } else {
      try await base.apply(operations)
    }
    await sweeper.entriesWereWritten(keys.count)
  }

  /// Those of the keys that have an entry which is there no longer.
  private func expiredKeys(of keys: [CacheKey]) async throws -> [CacheKey] {
    if keys.count == 1 {
      let isExpired = try await base.read(key: keys[0]).map { try lifetimes.isExpired($0, key: keys[0]) }
      return isExpired ?? false ? keys : []
    }
    var look = lifetimes.look()
    return try await base.readDataAndKeys(keys: keys)
      .filter { try look.isExpired($0.data, key: $0.key) }.map(\.key)
  }

  /// What is written in place of an expired entry is a new one, with a time and a place in the order of its own.
  private func replace(_ expired: [CacheKey], by operations: [StorageOperation]) async throws {
    guard capabilities.contains(.transactions) else {
      return try await base.apply(expired.map { .remove(key: $0) } + operations)
    }
    try await base.withTransaction { [lifetimes] base in
      let transaction = ExpiringTransaction(base: base, lifetimes: lifetimes)
      for operation in operations {
        switch operation {
        case .write(let stored, let key): try transaction.put(stored, key: key)
        case .remove(let key): try transaction.remove(key: key)
        case .removeAll: try transaction.removeAll()
        }
      }
    }
  }

  /// A transaction of the engine below, which sees no expired entry. A write reads the old value.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, writeCount) = try await base.withTransaction { [lifetimes] in
      let transaction = ExpiringTransaction(base: $0, lifetimes: lifetimes)
      return (try body(transaction), transaction.writeCount)
    }
    await sweeper.entriesWereWritten(writeCount)
    return result
  }

  // MARK: Reading

  /// Reads a value whose time is not over.
  public func read(key: CacheKey) async throws -> Data? {
    try await base.read(key: key).flatMap { try lifetimes.value($0, key: key) }
  }

  /// Reads the values whose time is not over.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await readDataAndKeys(keys: keys).map(\.data)
  }

  /// Reads the values whose time is not over.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await present(base.readDataAndKeys(keys: keys))
  }

  /// Reads every value whose time is not over.
  @concurrent public func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  /// Reads every value whose time is not over.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await present(base.readAllDataAndKeys())
  }

  /// Reads every entry whose time is not over.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await present(base.readAllEntries())
  }

  /// Reads the entries whose time is not over.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await present(base.readEntries(keys: keys))
  }

  /// Reads the value.
  public func keyExists(_ key: CacheKey) async throws -> Bool { try await read(key: key) != nil }

  /// Reads the values.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await readDataAndKeys(keys: keys).map(\.key)
  }

  /// Reads every value.
  @concurrent public func keyCount() async throws -> Int { try await readAllDataAndKeys().count }

  /// Reads every value.
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
    guard let limit, limit > 0 else { return try await present(base.scan(range, limit: limit)) }
    var size = limit
    while true {
      let page = try await base.scan(range, limit: size)
      let present = try await present(page)
      if present.count >= limit || page.count < size { return Array(present.prefix(limit)) }
      size = size > .max / 2 ? .max : max(2 * size, 64)
    }
  }

  /// Has the engine below verify what it stores, then looks at the time of every value, some hundred at a time.
  @concurrent public func verify() async throws {
    try await base.verify()
    let keys = try await base.allKeys()
    for start in stride(from: 0, to: keys.count, by: 256) {
      _ = try await read(keys: Array(keys[start..<min(start + 256, keys.count)]))
    }
  }

  private func present(
    _ stored: [(key: CacheKey, data: Data)]
  ) async throws -> [(key: CacheKey, data: Data)] {
    var look = lifetimes.look()
    return try await mapping(stored) { entry in
      try look.value(entry.data, key: entry.key).map { (key: entry.key, data: $0) }
    }.compactMap(\.self)
  }

  private func present(_ stored: [StorageEntry]) async throws -> [StorageEntry] {
    var look = lifetimes.look()
    return try await mapping(stored) { stored -> StorageEntry? in
      guard let data = try look.value(stored.data, key: stored.key) else { return nil }
      var entry = stored
      entry.data = data
      return entry
    }.compactMap(\.self)
  }
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
