import Foundation
import PeerPostgreSQL
import StockroomCore
import Synchronization

/// PostgreSQL through its C interface: one connection, its statements prepared once, everything in binary format.
final class PostgreSQLPeer: PlainValues {
  /// How batches are written.
  enum Batches {
    /// As arrays.
    case unnest
    /// By COPY into a temporary table.
    case copy
  }

  private let connection: Mutex<PostgreSQLConnection?>
  private let batches: Batches

  init(_ connection: String, directory: URL, durability: Durability, batches: Batches) throws {
    let table = "peer_" + CacheKey(directory.path).value.lowercased().replacing("-", with: "")
    self.connection = Mutex(try PostgreSQLConnection(connection, table: table, durability: durability))
    self.batches = batches
  }

  var capabilities: EngineCapabilities {
    [.persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .transactions]
  }

  func close() async throws { connection.withLock { $0 = nil } }

  private func locked<Result: Sendable>(_ body: (PostgreSQLConnection) throws -> Result) throws -> Result {
    try connection.withLock { connection in
      guard let connection else { throw StorageError(.closed, "The database is closed.") }
      return try body(connection)
    }
  }

  func write(_ data: Data, key: CacheKey) async throws { try locked { try $0.put(data, key) } }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    // A statement with ON CONFLICT cannot write a key twice: the last value is kept.
    var last: [CacheKey: Data] = [:]
    for (key, data) in dataAndKeys { last[key] = data }
    let entries = last.count == dataAndKeys.count ? dataAndKeys : last.map { ($0.key, $0.value) }
    try locked { connection in
      switch batches {
      case .copy: try connection.copy(entries)
      case .unnest: try connection.put(entries)
      }
    }
  }

  func read(key: CacheKey) async throws -> Data? { try locked { try $0.get(key) } }

  func read(keys: [CacheKey]) async throws -> [Data] { try await readDataAndKeys(keys: keys).map(\.data) }

  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try locked { try $0.get(keys) }
  }

  func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try locked { try $0.execute("all", []) { $0.entries() } }
  }

  func remove(key: CacheKey) async throws { try locked { try $0.delete(key) } }

  func remove(keys: [CacheKey]) async throws {
    try locked { connection in
      var array = [UInt8].byteArray(count: keys.count)
      for key in keys { key.withBytes { array.append(field: $0) } }
      try array.withUnsafeBytes { try connection.execute("removeMany", [$0]) { _ in } }
    }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try locked { connection in
      // The default isolation level suffices, since nothing else uses the table at the same time.
      try connection.run("BEGIN")
      do {
        let result = try body(
          PeerTransaction(get: connection.get, put: connection.put, delete: connection.delete))
        try connection.run("COMMIT")
        return result
      } catch {
        try connection.run("ROLLBACK")
        throw error
      }
    }
  }

  func removeAllData() async throws { try locked { try $0.execute("removeAll", []) { _ in } } }

  func keyCount() async throws -> Int { try locked { try $0.execute("count", []) { $0.number(0, 0) } } }

  func allKeys() async throws -> [CacheKey] { try await readAllDataAndKeys().map(\.key) }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let bounds = ScanBounds(range, limit: limit)
    return try locked { connection in
      // One more, since the first row can be the excluded bound.
      let count = withUnsafeBytes(of: Int64(min(bounds.limit, .max - 1) + 1).bigEndian) { [UInt8]($0) }
      return try bounds.start.withUnsafeBytes { start in
        try count.withUnsafeBytes { count in
          try connection.execute("range", [start, count]) { result in
            result.entries().filter { entry in entry.key.withBytes { bounds.position(of: $0) == .inside } }
              .prefix(bounds.limit).map { $0 }
          }
        }
      }
    }
  }
}

extension PostgreSQLConnection {
  fileprivate func put(_ data: Data, _ key: CacheKey) throws {
    try key.withBytes { key in
      try data.withUnsafeBytes { data in try execute("put", [key, data]) { _ in } }
    }
  }

  fileprivate func put(_ entries: [(key: CacheKey, data: Data)]) throws {
    var (keys, values) = ([UInt8].byteArray(count: entries.count), [UInt8].byteArray(count: entries.count))
    for (key, data) in entries {
      key.withBytes { keys.append(field: $0) }
      data.withUnsafeBytes { values.append(field: $0) }
    }
    try keys.withUnsafeBytes { keys in
      try values.withUnsafeBytes { values in try execute("putMany", [keys, values]) { _ in } }
    }
  }

  fileprivate func get(_ key: CacheKey) throws -> Data? {
    try key.withBytes { try execute("get", [$0]) { PQntuples($0) == 0 ? nil : $0.data(0, 0) } }
  }

  fileprivate func get(_ keys: [CacheKey]) throws -> [(key: CacheKey, data: Data)] {
    var array = [UInt8].byteArray(count: keys.count)
    for key in keys { key.withBytes { array.append(field: $0) } }
    return try array.withUnsafeBytes { array in
      try execute("getMany", [array]) { result in
        var rows = [Int32?](repeating: nil, count: keys.count)
        for row in 0..<PQntuples(result) { rows[result.number(row, 0) - 1] = row }
        return zip(keys, rows).compactMap { key, row in row.map { (key, result.data($0, 1)) } }
      }
    }
  }

  fileprivate func delete(_ key: CacheKey) throws {
    try key.withBytes { try execute("remove", [$0]) { _ in } }
  }
}

extension OpaquePointer {
  fileprivate func bytes(_ row: Int32, _ column: Int32) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: PQgetvalue(self, row, column), count: Int(PQgetlength(self, row, column)))
  }

  fileprivate func data(_ row: Int32, _ column: Int32) -> Data { Data(bytes(row, column)) }

  fileprivate func number(_ row: Int32, _ column: Int32) -> Int {
    Int(Int64(bigEndian: bytes(row, column).loadUnaligned(as: Int64.self)))
  }

  fileprivate func entries() -> [(key: CacheKey, data: Data)] {
    (0..<PQntuples(self)).map { (CacheKey(bytes: bytes($0, 0)), data($0, 1)) }
  }
}
