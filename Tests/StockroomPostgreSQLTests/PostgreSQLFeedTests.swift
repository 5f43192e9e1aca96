@testable import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
@testable import StockroomPostgreSQL
import Testing

@Suite(
  "PostgreSQL: change feeds", .timeLimit(.minutes(10)),
  .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLFeedTests {
  private let server = PostgreSQLServer.shared

  @Test(
    "A commit under way when a subscription begins is covered, though it was announced to nobody (rule X1)")
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
    // What a commit does while nobody subscribes. It takes until somebody waits for it.
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

  @Test("A subscriber hears nothing while nothing changes, though the server ends idle sessions (rule X3)")
  func idleSessions() async throws {
    let name = newNamespace()
    try await server.start()
    // Asked for in the connection's own options, as an administrator does for a role.
    let engine = try await PostgreSQLStorageEngine(
      server.connection + " application_name=\(name) options='-c idle_session_timeout=300'", namespace: name,
      timeLimit: .seconds(300))
    let other = try await newEngine(name)
    let changes = try await engine.changes()
    let elements = MutexProtected<[StorageChange]>([])
    let listening = Task { for await change in changes { elements.withLock { $0.append(change) } } }
    // Sessions that are idle for longer would be ended by then.
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
    "After bytes that are none of the protocol, a subscriber receives everything, and then each change (rule X5)"
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
    // A notification of a negative length.
    relay.say([UInt8(ascii: "A"), 0xFF, 0xFF, 0xFF, 0xFF])
    #expect(await changes.next() == .everything)
    try await writer.write(value(1), key: key(1))
    // What the listener did while it connected may be part of that.
    while let change = await changes.next(), change != .keys([key(1)]) {}
    try await subscriber.close()
    try await writer.close()
  }
}

/// Passes bytes on between engines and a server, and can say what no server says.
private final class Relay: Sendable {
  private struct State {
    var clients: Set<Int32> = []
    var isClosed = false
  }

  /// Where engines reach it.
  let port: UInt16
  private let listener: Int32
  private let server: ConformanceServer.Address
  private let state = MutexProtected(State())

  init(to server: ConformanceServer.Address) throws {
    self.server = server
    (listener, port) = try NetworkSocket.listen()
    Thread.detachNewThread { [self] in accept() }
  }

  /// Sends the bytes to every engine that is connected.
  func say(_ bytes: [UInt8]) {
    state.withLock { state in
      for client in state.clients { _ = NetworkSocket.send(bytes[...], to: client) }
    }
  }

  /// Takes no more connections, and ends those that there are.
  func close() {
    state.withLock { state in
      state.isClosed = true
      for client in state.clients { NetworkSocket.shutDown(client) }
    }
    // The thread that takes connections wakes up and closes the socket.
    if let own = try? NetworkSocket.connect(to: .loopback(port: port)) { NetworkSocket.close(own) }
  }

  private func accept() {
    while let client = NetworkSocket.accept(listener) {
      guard !state.withLock({ $0.isClosed }), let target = try? NetworkSocket.connect(to: server) else {
        NetworkSocket.close(client)
        if state.withLock({ $0.isClosed }) { break }
        continue
      }
      state.withLock { _ = $0.clients.insert(client) }
      Thread.detachNewThread { [self] in
        let isOver = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
          Self.pass(from: client, to: target)
          isOver.signal()
        }
        Self.pass(from: target, to: client)
        isOver.wait()
        state.withLock { _ = $0.clients.remove(client) }
        NetworkSocket.close(client)
        NetworkSocket.close(target)
      }
    }
    NetworkSocket.close(listener)
  }

  /// Passes on what comes until one side ends.
  private static func pass(from source: Int32, to target: Int32) {
    let size = 65_536
    var buffer = [UInt8](repeating: 0, count: size)
    while true {
      let count = NetworkSocket.receive(source, &buffer, size)
      guard count > 0, NetworkSocket.send(buffer[..<count], to: target) else { break }
    }
    for socket in [source, target] { NetworkSocket.shutDown(socket) }
  }
}
