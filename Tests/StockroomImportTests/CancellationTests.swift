import Foundation
import StockroomCore
import StockroomImport
import TestFixtures
import Testing

/// Imports that are cancelled while SQLite runs a statement that takes many seconds, or never ends.
@Suite(.timeLimit(.minutes(60))) struct CancellationTests {
  let place: TemporaryDirectory
  /// A text that only the database of this test contains.
  private let marker = UUID().uuidString

  init() throws { place = try TemporaryDirectory() }

  @Test(
    "A cancelled import ends while the database is checked, whichever task has detected it, and leaves no copy",
    arguments: [LegacyDatabase.Layout.bodega, .persistentCache], [false, true])
  func check(_ layout: LegacyDatabase.Layout, isDetected: Bool) async throws {
    let url = try makeSlowDatabase(layout)
    if isDetected {
      let detected = try await ImportSourceKind.source(at: url)
      try await expectCancellation { _ = try await detected.source.open() }
    } else {
      let source: any ImportSource =
        layout == .bodega ? BodegaSQLiteSource(at: url) : PersistentCacheSource(at: url)
      try await expectCancellation { _ = try await source.open() }
    }
    #expect(try temporaryCopies(containing: marker) == [])
  }

  @Test("A cancelled import ends while an endless schema is read, and leaves no copy")
  func schema() async throws {
    let url = try makeEndlessSchema()
    try await expectCancellation { _ = try await ImportSourceKind.detect(at: url) }
    try await expectCancellation { _ = try await BodegaSQLiteSource(at: url).open() }
    #expect(try temporaryCopies(containing: marker) == [])
  }

  private func expectCancellation(
    _ open: @escaping @Sendable () async throws -> Void, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws {
    let small = place.beside("small")
    try FileManager.default.createDirectory(at: small, withIntermediateDirectories: true)
    try LegacyDatabase(.bodega, in: small).close()
    let task = Task { try await open() }
    // By then the task has most probably reached the statement. If it has not, the result is the same.
    for _ in 0..<3 { _ = try await BodegaSQLiteSource(at: small).open() }
    task.cancel()
    await #expect(throws: CancellationError.self, sourceLocation: sourceLocation) { try await task.value }
  }

  /// A sound database whose check compares each of 200,000 rows with 10,000 texts, which takes many seconds.
  private func makeSlowDatabase(_ layout: LegacyDatabase.Layout) throws -> URL {
    let database = try LegacyDatabase(at: place.appending(layout.fileName))
    let cases = (0..<10_000).map { "WHEN '\($0)' THEN 0" }.joined(separator: " ")
    let creation = layout.creation.dropLast()
    try database.execute("\(creation), CHECK (CASE \"key\" \(cases) ELSE 1 END))")
    // Otherwise writing the rows would take as long.
    try database.execute("PRAGMA ignore_check_constraints = ON")
    let (value, createdAt) = layout == .bodega ? ("value", "'2020-01-01T00:00:00'") : ("data", "1")
    try database.execute(
      """
      INSERT INTO \(layout == .bodega ? "data" : "cache_storage") ("key", \(value), createdAt)
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000)
      SELECT '\(marker)' || i, x'01', \(createdAt) FROM n
      """)
    database.close()
    return database.url
  }

  /// A database whose schema is a tree of 17 levels, in which each page refers 300 times to the one below it.
  private func makeEndlessSchema() throws -> URL {
    let database = try LegacyDatabase(.bodega, in: place.url)
    try database.insert(marker, Data())
    database.close()
    var bytes = [UInt8](try Data(contentsOf: database.url))
    let pageSize = Int(bytes[16]) << 8 | Int(bytes[17])
    // https://sqlite.org/fileformat.html#b_tree_pages
    func number(_ value: Int, bytes count: Int) -> [UInt8] {
      (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) }
    }
    /// An interior page with these children, of which the last is the right-most pointer.
    func interior(_ children: [Int], from start: Int = 0) -> [UInt8] {
      let cells = children.dropLast().map { number($0, bytes: 4) + [1] }
      let content = pageSize - 5 * cells.count
      var page = [0x05, 0, 0] + number(cells.count, bytes: 2) + number(content, bytes: 2) + [0]
      page += number(children.last ?? 0, bytes: 4)
      for index in cells.indices { page += number(content + 5 * index, bytes: 2) }
      return page + [UInt8](repeating: 0, count: content - start - page.count) + cells.flatMap(\.self)
    }
    /// A page with one of the two rows of the first page: the table, or its index, which may be read any number of
    /// times.
    func leaf(row: Int) -> [UInt8] {
      var page = Array(bytes[..<pageSize])
      page.replaceSubrange(
        0..<10, with: bytes[100..<103] + [0, 1] + bytes[105..<108] + bytes[(108 + 2 * row)..<(110 + 2 * row)])
      return page
    }
    let first = bytes.count / pageSize + 1
    var added = [leaf(row: 0), leaf(row: 1)]
    for level in 0..<17 { added.append(interior(Array(repeating: first + 1 + level, count: 300))) }
    let root = interior([first, first + added.count - 1], from: 100)
    bytes.replaceSubrange(100..<pageSize, with: root)
    bytes.replaceSubrange(28..<32, with: number(first + added.count - 1, bytes: 4))
    try Data(bytes + added.joined()).write(to: database.url)
    return database.url
  }
}
