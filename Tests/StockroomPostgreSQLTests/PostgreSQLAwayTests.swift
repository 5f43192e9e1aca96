import Dispatch
import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

/// A path to the shared test server that can be closed for one engine.
private struct ClosablePath: ~Copyable {
  private let place: TemporaryDirectory
  private let link: URL
  private let name = newNamespace()

  init() throws {
    place = try TemporaryDirectory()
    link = place.url.appending(path: "way")
  }

  /// - Parameter port: The port of this machine that is the second host, if any.
  func connection(orAt port: UInt16?) -> String {
    let hosts =
      port.map { "host=\(link.path),127.0.0.1 port=5432,\($0) sslmode=disable" } ?? "host=\(link.path)"
    return "\(PostgreSQLServer.shared.connection) \(hosts) application_name=\(name)"
  }

  /// Opens the path, and an engine that connects through it.
  func engine(timeLimit: Duration, orAt port: UInt16? = nil) async throws -> PostgreSQLStorageEngine {
    try await PostgreSQLServer.shared.start()
    try open()
    return try await PostgreSQLStorageEngine(
      connection(orAt: port), namespace: name, timeLimit: timeLimit)
  }

  func open() throws {
    try FileManager.default.createSymbolicLink(
      at: link, withDestinationURL: PostgreSQLServer.shared.directory)
  }

  /// Ends all connections and prevents new ones.
  func close() async throws {
    try FileManager.default.removeItem(at: link)
    try await PostgreSQLServer.shared.execute(
      """
      SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = '\(name)'
      """)
  }
}

@Suite(
  "PostgreSQL: an unreachable server", .timeLimit(.minutes(60)),
  .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLAwayTests {
  @Test("A write on an idle connection to a server that has gone away has no effect (rule N1)")
  func idleConnection() async throws {
    let way = try ClosablePath()
    let engine = try await way.engine(timeLimit: .seconds(12))
    try await engine.write(value(0), key: key(0))
    try await way.close()
    let error = await #expect(throws: StorageError.self) { try await engine.write(value(1), key: key(1)) }
    #expect(error?.code == .unavailable)
    try way.open()
    try await engine.write(value(2), key: key(2))
    #expect(try await engine.allKeys() == [key(0), key(2)])
  }

  @Test(
    "While a server is away, calls wait for it, though another host refuses the user or has no such database (rule N3)",
    arguments: ["28P01", "28000", "3D000"])
  func refusingHost(sqlState: String) async throws {
    let way = try ClosablePath()
    let refusing = try RefusingServer(sqlState: sqlState, message: "not here")
    defer { refusing.close() }
    let engine = try await way.engine(timeLimit: .seconds(300), orAt: refusing.port)
    try await engine.write(value(0), key: key(0))
    try await way.close()
    let write = Task { try await engine.write(value(1), key: key(1)) }
    for await _ in refusing.refusals.prefix(1) {}
    let read = Task { try await engine.read(key: key(0)) }
    for await _ in refusing.refusals.prefix(1) {}
    try way.open()
    try await write.value
    #expect(try await read.value == value(0))
    try await engine.close()
  }

  @Test(
    "Opening waits while a server or a pooler has too many connections (rule N6)",
    arguments: [
      ("53300", "sorry, too many clients already"),
      ("08P01", "no more connections allowed (max_client_conn)"),
    ])
  func fullServer(sqlState: String, message: String) async throws {
    try await PostgreSQLServer.shared.start()
    let way = try ClosablePath()
    let full = try RefusingServer(sqlState: sqlState, message: message)
    defer { full.close() }
    let connection = way.connection(orAt: full.port)
    let opening = Task {
      try await PostgreSQLStorageEngine(connection, namespace: newNamespace(), timeLimit: .seconds(300))
    }
    for await _ in full.refusals.prefix(1) {}
    try way.open()
    try await opening.value.close()
    let error = await #expect(throws: StorageError.self) {
      _ = try await PostgreSQLStorageEngine(
        "host=127.0.0.1 port=\(full.port) user=postgres dbname=postgres sslmode=disable",
        timeLimit: .milliseconds(200))
    }
    #expect(error?.code == .unavailable, "\(String(describing: error))")
  }

  @Test(
    "Behind a commit of unknown outcome, a write that has not been sent does not fail with .outcomeUnknown (rule N2)"
  )
  func behindAnUnknownOutcome() async throws {
    // A write submitted before the transaction is sent with it.
    var code: StorageError.Code?
    for _ in 0..<20 where code != .unavailable { code = try await codeBehindAnUnknownOutcome() }
    #expect(code == .unavailable)
  }

  /// The error code of a write that waits to be committed with a transaction whose outcome is unknown.
  private func codeBehindAnUnknownOutcome() async throws -> StorageError.Code? {
    let way = try ClosablePath()
    let engine = try await way.engine(timeLimit: .seconds(20))
    try await engine.write(value(0), key: key(0))
    let (beginning, hasBegun) = AsyncStream.makeStream(of: Never.self)
    let mayGoOn = DispatchSemaphore(value: 0)
    let first = Task {
      defer { hasBegun.finish() }
      try await engine.withTransaction { _ in
        hasBegun.finish()
        mayGoOn.wait()
        // The body may run again.
        mayGoOn.signal()
      }
    }
    for await _ in beginning {}
    // The two are committed together, unless the body's duration prevents it.
    let isOver = DispatchSemaphore(value: 0)
    let (bodyBeginning, bodyHasBegun) = AsyncStream.makeStream(of: Never.self)
    let transaction = Task {
      defer { bodyHasBegun.finish() }
      try await engine.withTransaction { transaction in
        try transaction.write(value(1), key: key(1))
        bodyHasBegun.finish()
        // More than a quarter of the limit.
        usleep(5_200_000)
        isOver.wait()
        isOver.signal()
      }
    }
    for _ in 0..<200 { await Task.yield() }
    let write = Task { try await engine.write(value(2), key: key(2)) }
    for _ in 0..<200 { await Task.yield() }
    mayGoOn.signal()
    try await first.value
    for await _ in bodyBeginning {}
    try await way.close()
    isOver.signal()
    let (outcome, other) = (await transaction.result, await write.result)
    let unknown = #expect(throws: StorageError.self) { try outcome.get() }
    #expect(unknown?.code == .outcomeUnknown)
    let error = #expect(throws: StorageError.self) { try other.get() }
    try way.open()
    try await engine.write(value(3), key: key(3))
    if error?.code == .unavailable { #expect(try await engine.read(key: key(2)) == nil) }
    return error?.code
  }

  @Test("A write that is cancelled before it is sent ends at once, and is not performed later (rule N1)")
  func cancelledBeforehand() async throws {
    let way = try ClosablePath()
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

  @Test(
    "A write that failed in a group and is retried ends at its deadline, and is not performed later (rule N1)"
  )
  func lateWrite() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name, timeLimit: .seconds(12))
    try await engine.write(value(0), key: key(0))
    // Makes a scan fail, and with it the group of writes.
    try await PostgreSQLServer.shared.execute(
      "INSERT INTO \"\(name)\".entries VALUES (99, 0, 0, '\\xff', '')")
    var number = 1
    while try await !writeLate(number, engine) { number += 1 }
    try await engine.close()
  }

  /// Makes a write wait for a transaction until the write's deadline.
  ///
  /// - Returns: False if the two were not committed together at first, in which case the write did not wait.
  private func writeLate(_ number: Int, _ engine: PostgreSQLStorageEngine) async throws -> Bool {
    let (beginning, hasBegun) = AsyncStream.makeStream(of: Never.self)
    let isQueued = DispatchSemaphore(value: 0)
    let runs = MutexProtected(0)
    let hasEnded = MutexProtected(false)
    let first = Task {
      defer { hasBegun.finish() }
      try await engine.withTransaction { _ in
        hasBegun.finish()
        isQueued.wait()
        // The body may run again.
        isQueued.signal()
      }
    }
    for await _ in beginning {}
    let transaction = Task {
      try await engine.withTransaction { transaction in
        let run = runs.withLock { runs in
          runs += 1
          return runs
        }
        if run == 1 { _ = try transaction.allKeys() }
        let end = ContinuousClock.now + .seconds(90)
        while !hasEnded.withLock({ $0 }), ContinuousClock.now < end { _ = try transaction.read(key: key(0)) }
      }
    }
    for _ in 0..<100 { await Task.yield() }
    let write = Task { try await engine.write(value(number), key: key(number)) }
    for _ in 0..<100 { await Task.yield() }
    isQueued.signal()
    let result = await write.result
    hasEnded.withLock { $0 = true }
    try await first.value
    let outcome = await transaction.result
    guard case .failure(let error) = result, case .success = outcome else { return false }
    #expect((error as? StorageError)?.code == .unavailable, "\(error)")
    #expect(try await engine.read(key: key(number)) == nil)
    return true
  }
}
