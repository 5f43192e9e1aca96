import Foundation
import StockroomCore
import StockroomImport
import TestFixtures
import Testing

struct TimesTests {
  let place: TemporaryDirectory
  let engine = RecordingEngine()

  init() throws { place = try TemporaryDirectory() }

  private var keys: [String] { engine.entries.map(\.key.value) }

  @Test(
    "Entries of Bodega with the time of the table's creation keep it, in the order in which they were written"
  )
  func tableDefault() async throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    for key in ["c", "a", "b"] { try database.insert(key, Data(key.utf8)) }
    try database.replace("c", Data("new".utf8), updatedAt: "2024-02-29T23:59:59.999")
    database.close()
    try await BodegaSQLiteSource(at: place.url).import(into: engine)
    #expect(keys == ["a", "b", "c"])
    let last = try #require(engine.entries.last)
    #expect(last.createdAt == (try date("2022-08-22T09:30:00.125Z")))
    #expect(last.updatedAt == (try date("2024-02-29T23:59:59.999Z")))
    #expect(last.data == Data("new".utf8))
  }

  @Test("Times with a zone are kept, and give the order", arguments: LegacyDatabase.Layout.allCases)
  func order(_ layout: LegacyDatabase.Layout) async throws {
    let database = try LegacyDatabase(layout, in: place.url)
    let times = [("late", "2023-05-06T07:08:09.250Z"), ("early", "2021-01-01T00:00:00.000Z")]
    for (key, time) in times {
      switch layout {
      case .bodega:
        try database.execute(
          "INSERT INTO data VALUES (?, ?, ?, ?)", .text(key), .blob(Data()), .text(String(time.dropLast())),
          .text(String(time.dropLast())))
      case .bodegaWithoutDefaults:
        try database.execute(
          "INSERT INTO notes VALUES (?, ?, ?, ?)", .text(key), .blob(Data()), .text(time), .text(time))
      case .persistentCache:
        try database.execute(
          "INSERT INTO cache_storage VALUES (?, ?, ?)", .text(key), .blob(Data()),
          .number(date(time).timeIntervalSince1970))
      }
    }
    database.close()
    let source: any ImportSource =
      layout == .persistentCache ? PersistentCacheSource(at: place.url) : BodegaSQLiteSource(at: place.url)
    try await source.import(into: engine)
    #expect(keys == ["early", "late"])
    for (entry, (_, time)) in zip(engine.entries, times.reversed()) {
      #expect(entry.createdAt == (try date(time)))
      #expect(entry.updatedAt == (try date(time)))
      #expect(entry.data == Data())
    }
  }

  @Test(
    "Every form of a time in a database of Bodega is read, or refused",
    arguments: [
      ("1970-01-01T00:00:00", "1970-01-01T00:00:00.000Z"),
      ("2024-02-29T12:00:00.5", "2024-02-29T12:00:00.500Z"),
      ("2000-12-31 23:59:59.000Z", "2000-12-31T23:59:59.000Z"),
      ("2023-03-01T01:00:00+02:00", "2023-02-28T23:00:00.000Z"),
      ("2023-12-31T23:30:00.000-0130", "2024-01-01T01:00:00.000Z"),
      ("1969-12-31T23:59:59Z", nil), ("2262-01-01T00:00:00Z", nil), ("2023-13-01T00:00:00Z", nil),
      ("2023-01-01T24:00:00Z", nil), ("2023-01-01T00:00:00.", nil), ("2023-01-01T00:00:00Zz", nil),
      ("2023-01-01", nil), ("", nil), ("now", nil),
    ])
  func forms(_ text: String, _ expected: String?) async throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    try database.insert("key", Data(), updatedAt: text)
    try database.execute("UPDATE data SET createdAt = updatedAt")
    database.close()
    let source = BodegaSQLiteSource(at: place.url)
    guard let expected else {
      return try await expectRefusal(of: source, .corrupted, "data.sqlite3", "row 1", "time")
    }
    try await source.import(into: engine)
    #expect(engine.entries.first?.updatedAt == (try date(expected)))
  }

  @Test("Entries from files have the times of their last changes, and this order; 1970 if earlier")
  func files() async throws {
    for (name, seconds) in [("c", -5.0), ("a", 2e9), ("b", 1e9)] {
      let file = place.appending(name)
      try Data(name.utf8).write(to: file)
      try FileManager.default.setAttributes(
        [.modificationDate: Date(timeIntervalSince1970: seconds)],
        ofItemAtPath: file.path(percentEncoded: false))
    }
    try await BodegaDiskSource(at: place.url).import(into: engine, keys: .asStored)
    #if canImport(Darwin)
      // On Apple's systems, an entry is created at its file's creation time if that is earlier.
      #expect(Set(keys) == ["c", "b", "a"])
    #else
      #expect(keys == ["c", "b", "a"])
      #expect(engine.entries.map(\.createdAt) == engine.entries.map(\.updatedAt))
    #endif
    #expect(engine.entries.map { $0.updatedAt.timeIntervalSince1970 }.sorted() == [0, 1e9, 2e9])
  }
}
