import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import Testing

@Suite(
  "PostgreSQL: group commits", .timeLimit(.minutes(60)),
  .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLGroupTests {
  private let server = PostgreSQLServer.shared

  /// Expects that of many concurrent writes only the refused one fails.
  ///
  /// - Parameter refused: Called among writes of the keys 100 to 149.
  private func expectFailure(
    _ code: StorageError.Code, of refused: @escaping @Sendable () async throws -> Void,
    amongWritesOf engine: PostgreSQLStorageEngine
  ) async throws {
    // Some of them arrive while the first one is being committed, and form a group.
    for round in 0..<5 {
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 100..<150 {
          group.addTask { try await engine.write(value(round), key: key(number)) }
          guard number == 125 else { continue }
          group.addTask {
            let error = await #expect(throws: StorageError.self) { try await refused() }
            #expect(error?.code == code, "\(String(describing: error))")
          }
        }
        try await group.waitForAll()
      }
      let found = try await engine.read(keys: (100..<150).map { key($0) })
      #expect(found == [Data](repeating: value(round), count: 50))
    }
  }

  @Test("A removal without the required privilege fails no write of other tasks (rule N5)")
  func missingRight() async throws {
    try await server.start()
    let name = "user_" + newNamespace().replacing("-", with: "_").lowercased()
    try await server.execute("CREATE ROLE \(name) LOGIN; CREATE SCHEMA \(name) AUTHORIZATION \(name)")
    let engine = try await PostgreSQLStorageEngine(
      "host=\(server.directory.path) dbname=postgres user=\(name)", namespace: name, timeLimit: .seconds(300))
    try await engine.write(value(1), key: key(1))
    try await server.execute("REVOKE DELETE ON \(name).entries FROM \(name)")
    try await expectFailure(
      .permissionDenied, of: { try await engine.remove(key: key(1)) }, amongWritesOf: engine)
    #expect(try await engine.read(key: key(1)) == value(1))
    try await engine.close()
  }

  @Test(
    "A write that detects corruption, or cannot get its lock, fails no write of other tasks",
    arguments: [("XX001", StorageError.Code.corrupted), ("55P03", StorageError.Code.locked)])
  func refusal(sqlState: String, code: StorageError.Code) async throws {
    let name = newNamespace()
    let engine = try await newEngine(name)
    try await server.execute(
      """
      CREATE FUNCTION "\(name)".refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''broken'' USING ERRCODE = ''\(sqlState)''; END';
      CREATE TRIGGER refuse BEFORE INSERT ON "\(name)".entries
        FOR EACH ROW WHEN (NEW.key = 'key-1'::bytea) EXECUTE FUNCTION "\(name)".refuse()
      """)
    try await expectFailure(
      code, of: { try await engine.write(value(1), key: key(1)) }, amongWritesOf: engine)
    try await expectFailure(
      code, of: { try await engine.withTransaction { try $0.write(value(1), key: key(1)) } },
      amongWritesOf: engine)
    #expect(try await engine.read(key: key(1)) == nil)
    try await engine.close()
  }

  @Test("A write that could not get its lock in a group waits for it only briefly when it is retried alone")
  func lockWait() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name)
    try await server.execute(
      """
      CREATE FUNCTION "\(name)".refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''waited for %'', current_setting(''lock_timeout'') USING ERRCODE = ''55P03''; END';
      CREATE TRIGGER refuse BEFORE INSERT ON "\(name)".entries
        FOR EACH ROW WHEN (NEW.key = 'key-1'::bytea) EXECUTE FUNCTION "\(name)".refuse()
      """)
    // It is not in a group if it is the first one.
    var wait = ""
    while wait.isEmpty || wait.contains("150s") {
      wait = try await withThrowingTaskGroup(of: String.self) { group in
        for number in [0, 2, 1, 3] {
          group.addTask {
            do {
              try await engine.write(value(number), key: key(number))
              return ""
            } catch let error as StorageError where number == 1 && error.code == .locked {
              return error.description
            }
          }
        }
        return try await group.reduce(into: "") { $0 += $1 }
      }
    }
    #expect(wait.contains("waited for"), "\(wait)")
    try await engine.close()
  }

  @Test("A write does not fail when a transaction before it in its group is cancelled (rule C4)")
  func cancelledTransaction() async throws {
    let limit = Duration.seconds(12)
    let engine = try await newEngine(newNamespace(), timeLimit: limit)
    let (mayEnd, isCancelled) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let (firstBeginning, firstHasBegun) = AsyncStream.makeStream(of: Never.self)
    let first = Task {
      try await engine.withTransaction { _ in
        firstHasBegun.finish()
        mayEnd.wait()
      }
    }
    for await _ in firstBeginning {}
    let (beginning, hasBegun) = AsyncStream.makeStream(of: Never.self)
    let cancelled = Task {
      try await engine.withTransaction { _ in
        hasBegun.finish()
        // Takes so long that the rest of the group is left for another commit.
        let end = ContinuousClock.now + limit * 0.26
        isCancelled.wait()
        while ContinuousClock.now < end { usleep(10_000) }
      }
    }
    await letTasksQueue()
    let write = Task { try await engine.write(value(1), key: key(1)) }
    await letTasksQueue()
    mayEnd.signal()
    try await first.value
    for await _ in beginning {}
    cancelled.cancel()
    isCancelled.signal()
    await #expect(throws: CancellationError.self) { try await cancelled.value }
    try await write.value
    #expect(try await engine.read(key: key(1)) == value(1))
    try await engine.close()
  }

  /// Gives tasks that have been started time to queue up, as one group if the engine is busy.
  private func letTasksQueue() async {
    let end = ContinuousClock.now + .milliseconds(300)
    while ContinuousClock.now < end { await Task.yield() }
  }
}
