import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import Testing

@Suite("PostgreSQL: order")
struct PostgreSQLOrderTests {
  private let name = newNamespace()
  private let server = PostgreSQLServer.shared

  @Test(
    "A new key comes after all keys that could be read before it, whatever another machine is writing (rule R6)"
  )
  func newKeysOfTwo() async throws {
    let (one, two) = (try await engine(1), try await engine(2))
    try await two.write(value(0), key: "old")
    let other = try await OtherProgram("INSERT INTO entries VALUES (0, 0, 0, 'm', '')", "ROLLBACK", in: name)
    // Has numbered two keys, and waits.
    async let first: Void = one.write(["a", "m"].map { ($0, value(1)) })
    try await server.waitForLock(of: "\(name)_1")
    async let second: Void = two.write(value(2), key: "b")
    try await server.wait(
      until: """
        EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '\(name)_2' AND wait_event_type = 'Lock')
          OR EXISTS (SELECT FROM "\(name)".entries WHERE key = 'b')
        """)
    let before = try await one.keys
    try await other.end()
    try await first
    try await second
    let after = try await one.keys
    #expect(after.starts(with: before), "\(before), and then \(after)")
    #expect(Set(after) == ["old", "a", "m", "b"])
    for engine in [one, two] { try await engine.close() }
  }

  @Test(
    "A key that is removed during an overwrite is created again after the keys written meanwhile (rule R6)")
  func removedMeanwhile() async throws {
    let (one, two) = (try await engine(1), try await engine(2))
    for keys in [["a"], ["a", "c"]] as [[CacheKey]] {
      try await two.write(["a", "c"].map { ($0, value(0)) })
      try await two.remove(key: "b")
      let other = try await OtherProgram("DELETE FROM entries WHERE key = 'a'", "COMMIT", in: name)
      async let overwriting: Void = one.write(keys.map { ($0, value(1)) })
      try await server.waitForLock(of: "\(name)_1")
      try await two.write(value(2), key: "b")
      #expect(try await two.keys == ["a", "c", "b"])
      try await other.end()
      try await overwriting
      #expect(try await two.keys == ["c", "b", "a"])
      #expect(try await two.read(keys: keys) == keys.map { _ in value(1) })
      try await two.removeAllData()
    }
    for engine in [one, two] { try await engine.close() }
  }

  @Test("New keys of one machine do not delay overwrites by others (rule C1)")
  func overwriting() async throws {
    let (one, two) = (try await engine(1), try await engine(2))
    let keys: [CacheKey] = ["b", "c"]
    try await two.write(keys.map { ($0, value(0)) })
    let other = try await OtherProgram("INSERT INTO entries VALUES (0, 0, 0, 'm', '')", "ROLLBACK", in: name)
    async let first: Void = one.write(["a", "m"].map { ($0, value(1)) })
    try await server.waitForLock(of: "\(name)_1")
    // Otherwise this would wait until the other program rolls back, which is an error.
    try await two.write(value(2), key: "b")
    try await two.write(keys.map { ($0, value(3)) })
    try await two.remove(key: "c")
    #expect(try await two.readAllDataAndKeys().map(\.data) == [value(3)])
    try await other.end()
    try await first
    for engine in [one, two] { try await engine.close() }
  }

  private func engine(_ number: Int) async throws -> PostgreSQLStorageEngine {
    try await server.start()
    return try await PostgreSQLStorageEngine(
      server.connection + " application_name=\(name)_\(number)", namespace: name, timeLimit: .seconds(300))
  }
}

extension StorageEngine {
  /// All keys, in order of creation.
  fileprivate var keys: [CacheKey] {
    get async throws { try await readAllEntries().map(\.key) }
  }
}
