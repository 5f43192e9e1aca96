import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import Testing

@Suite(
  "PostgreSQL: group commits", .timeLimit(.minutes(10)),
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
    for round in 0..<20 {
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

  @Test("A write that detects corruption fails no write of other tasks")
  func corruption() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name)
    try await server.execute(
      """
      CREATE FUNCTION "\(name)".refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''broken'' USING ERRCODE = ''XX001''; END';
      CREATE TRIGGER refuse BEFORE INSERT ON "\(name)".entries
        FOR EACH ROW WHEN (NEW.key = 'key-1'::bytea) EXECUTE FUNCTION "\(name)".refuse()
      """)
    try await expectFailure(
      .corrupted, of: { try await engine.write(value(1), key: key(1)) }, amongWritesOf: engine)
    #expect(try await engine.read(key: key(1)) == nil)
    try await engine.close()
  }
}
