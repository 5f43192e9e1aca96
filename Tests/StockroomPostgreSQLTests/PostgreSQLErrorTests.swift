import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import Testing

@Suite("PostgreSQL: errors", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLErrorTests {
  @Test("A multi-line message of the server becomes one line of an error")
  func lines() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name)
    try await PostgreSQLServer.shared.execute(
      """
      CREATE FUNCTION "\(name)".refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION USING MESSAGE = E''not\\ntoday'', DETAIL = E''nor\\ttomorrow''; END';
      CREATE TRIGGER refusal BEFORE INSERT ON "\(name)".entries
        FOR EACH ROW EXECUTE FUNCTION "\(name)".refuse()
      """)
    let error = await #expect(throws: StorageError.self) { try await engine.write(value(1), key: key(1)) }
    let text = try #require(error).description
    #expect(text.contains("not today nor tomorrow"), "\(text)")
    #expect(!text.contains { $0.isNewline || $0 == "\t" }, "\(text)")
    try await engine.close()
  }
}
