import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

/// The way to the server that most tests share, which can be closed for one engine.
private struct Way: ~Copyable {
  private let place: TemporaryDirectory
  private let link: URL
  private let name = newNamespace()

  init() throws {
    place = try TemporaryDirectory()
    link = place.url.appending(path: "way")
  }

  /// Opens the way, and an engine that goes it.
  func engine(timeLimit: Duration) async throws -> PostgreSQLStorageEngine {
    try await PostgreSQLServer.shared.start()
    try open()
    return try await PostgreSQLStorageEngine(
      PostgreSQLServer.shared.connection + " host=\(link.path) application_name=\(name)", namespace: name,
      timeLimit: timeLimit)
  }

  func open() throws {
    try FileManager.default.createSymbolicLink(
      at: link, withDestinationURL: PostgreSQLServer.shared.directory)
  }

  /// Ends all connections, and lets nobody make another.
  func close() async throws {
    try FileManager.default.removeItem(at: link)
    try await PostgreSQLServer.shared.execute(
      """
      SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = '\(name)'
      """)
  }
}

@Suite(
  "PostgreSQL: a server that is away", .timeLimit(.minutes(10)),
  .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLAwayTests {
  @Test("A write to a server that went away while nothing was asked of it has not happened (rule N1)")
  func idleConnection() async throws {
    let way = try Way()
    let engine = try await way.engine(timeLimit: .seconds(5))
    try await engine.write(value(0), key: key(0))
    try await way.close()
    let error = await #expect(throws: StorageError.self) { try await engine.write(value(1), key: key(1)) }
    #expect(error?.code == .unavailable)
    try way.open()
    try await engine.write(value(2), key: key(2))
    #expect(try await engine.allKeys() == [key(0), key(2)])
  }

  @Test("A write that is cancelled before it is sent ends at once, and is not done later (rule N1)")
  func cancelledBeforehand() async throws {
    let way = try Way()
    let engine = try await way.engine(timeLimit: .seconds(300))
    try await engine.write(value(0), key: key(0))
    try await way.close()
    for number in 1...20 {
      let write = Task { try await engine.write(value(number), key: key(number)) }
      for _ in 0..<number * number { await Task.yield() }
      write.cancel()
      await #expect(throws: CancellationError.self) { try await write.value }
    }
    try way.open()
    try await engine.write(value(0), key: key(0))
    #expect(try await engine.allKeys() == [key(0)])
  }
}
