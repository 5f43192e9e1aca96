@testable import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
@testable import StockroomPostgreSQL
import Testing

@Suite(
  "PostgreSQL: change feeds", .timeLimit(.minutes(60)),
  .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLFeedTests {
  private let server = PostgreSQLServer.shared

  @Test("A subscription whose connection is lost while it begins is made on another one (rules N2, N3)")
  func lostWhileBeginning() async throws {
    let name = newNamespace()
    try await server.start()
    let engine = try await PostgreSQLStorageEngine(
      server.connection + " application_name=\(name)", namespace: name, timeLimit: .seconds(300))
    let lock = try PostgreSQLNamespace(name).lock(of: .subscribers)
    let committing = try await OtherProgram("SELECT pg_advisory_xact_lock(\(lock))", "COMMIT", in: name)
    let subscription = Task { try await engine.changes() }
    try await server.waitForLock(of: name)
    try await server.execute(
      """
      SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
      WHERE application_name = '\(name)' AND wait_event_type = 'Lock'
      """)
    try await committing.end()
    let changes = try await subscription.value
    withExtendedLifetime(changes) {}
    try await engine.close()
  }

  @Test(
    "A commit in progress when a subscription begins is reported, although it sent no notification (rule X1)")
  func commitMeanwhile() async throws {
    let name = newNamespace()
    let writer = try await newEngine(name)
    let subscriber = try await PostgreSQLStorageEngine(
      server.connection + " application_name=\(name)", namespace: name, timeLimit: .seconds(300))
    let lock = try PostgreSQLNamespace(name).lock(of: .subscribers)
    let waiting = PostgreSQLServer.waiting(
      until: """
        EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '\(name)' AND wait_event_type = 'Lock')
        """)
    // A commit without subscribers, which sends no notification. It waits until another session waits for it.
    async let commit: Void = server.execute(
      """
      SET application_name = '\(name)_commit'; BEGIN; SELECT pg_advisory_xact_lock(\(lock)); \(waiting); COMMIT
      """)
    try await server.wait(
      until: """
        EXISTS (
          SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
          WHERE application_name = '\(name)_commit' AND locktype = 'advisory' AND granted)
        """)
    var changes = try await subscriber.changes().makeAsyncIterator()
    try await commit
    try await writer.write(value(1), key: key(1))
    #expect(await changes.next() == .everything)
    try await subscriber.close()
    try await writer.close()
  }

  @Test(
    "A subscriber receives nothing while nothing changes, although the server ends idle sessions (rule X3)")
  func idleSessions() async throws {
    let name = newNamespace()
    try await server.start()
    // Set in the connection's options, as an administrator would for a role.
    let engine = try await PostgreSQLStorageEngine(
      server.connection + " application_name=\(name) options='-c idle_session_timeout=300'", namespace: name,
      timeLimit: .seconds(300))
    let other = try await newEngine(name)
    let changes = try await engine.changes()
    let elements = MutexProtected<[StorageChange]>([])
    let listening = Task { for await change in changes { elements.withLock { $0.append(change) } } }
    // By then the server would have ended idle sessions.
    try await server.execute("SELECT pg_sleep(1.2)")
    #expect(elements.withLock { $0 } == [])
    try await other.write(value(1), key: key(1))
    var found: [StorageChange] = []
    while found.isEmpty {
      found = elements.withLock { $0 }
      await Task.yield()
    }
    #expect(found == [.keys([key(1)])])
    try await engine.close()
    await listening.value
    try await other.close()
  }

  @Test(
    "After bytes that violate the protocol, a subscriber receives everything, and then each change (rule X5)"
  )
  func garbage() async throws {
    let name = newNamespace()
    let writer = try await newEngine(name)
    let relay = try Relay(to: .unixSocket(server.socket))
    defer { relay.close() }
    let subscriber = try await PostgreSQLStorageEngine(
      "host=127.0.0.1 port=\(relay.port) user=postgres dbname=postgres sslmode=disable", namespace: name,
      timeLimit: .seconds(300))
    var changes = try await subscriber.changes().makeAsyncIterator()
    // A notification with a negative length.
    relay.say([UInt8(ascii: "A"), 0xFF, 0xFF, 0xFF, 0xFF])
    #expect(await changes.next() == .everything)
    try await writer.write(value(1), key: key(1))
    // Changes made while the listener connected may be part of that element.
    while let change = await changes.next(), change != .keys([key(1)]) {}
    try await subscriber.close()
    try await writer.close()
  }
}
