import StockroomCore

/// The connections of one database that only read. There are never more than callers at the same time, and no caller
/// ever waits for another.
final class SQLiteReaders: Sendable {
  /// How many are kept while nobody uses them.
  private static let mostIdle = 8

  private let path: String
  private let idle = Guarded<[SQLiteConnection]>([])

  init(path: String) { self.path = path }

  /// Lends a connection to `body`. Opens one if none is idle.
  func withReader<Result>(_ body: (SQLiteConnection) throws -> Result) throws -> Result {
    let reader = try idle.withLock { $0.popLast() } ?? open()
    defer {
      let isKept = idle.withLock { idle in
        guard idle.count < Self.mostIdle else { return false }
        idle.append(reader)
        return true
      }
      if !isKept { reader.close() }
    }
    return try body(reader)
  }

  /// Closes the connections that nobody uses.
  func drain() {
    let readers = idle.withLock { idle in
      defer { idle = [] }
      return idle
    }
    for reader in readers { reader.close() }
  }

  private func open() throws -> SQLiteConnection {
    let reader = try SQLiteConnection(path: path, role: .reader)
    try reader.enlargeCache()
    return reader
  }
}
