import Foundation
import StockroomCore
import TestFixtures
import StockroomFileSystem
import Testing

@Suite("A place that is moved or removed under an open engine")
struct PlaceTests {
  /// A change that another program makes to the place.
  enum Change: CaseIterable {
    case removed, moved, movedAndMadeAnew, hiddenDirectoryRemoved, hiddenDirectoryMoved, stateRemoved,
      stateReplaced,
      stateCopiedOver, linkedCopy, hiddenDirectoryInAnother

    func make(_ place: URL) throws {
      let files = FileManager.default
      let hidden = place.appending(path: ".stockroom")
      let state = hidden.appending(path: "state")
      let elsewhere = place.deletingLastPathComponent().appending(path: "elsewhere")
      switch self {
      case .removed: try files.removeItem(at: place)
      case .moved: try files.moveItem(at: place, to: elsewhere)
      case .movedAndMadeAnew:
        try files.moveItem(at: place, to: elsewhere)
        try files.createDirectory(at: place, withIntermediateDirectories: false)
      case .hiddenDirectoryRemoved: try files.removeItem(at: hidden)
      case .hiddenDirectoryMoved: try files.moveItem(at: hidden, to: elsewhere)
      case .stateRemoved: try files.removeItem(at: state)
      case .stateReplaced:
        try files.removeItem(at: state)
        try Data().write(to: state)
      case .stateCopiedOver:
        // Like a program that restores a backup.
        try files.copyItem(at: state, to: elsewhere)
        try #require(rename(elsewhere.path, state.path) == 0)
      case .linkedCopy:
        // Like a program that makes backups with hard links.
        try files.moveItem(at: place, to: elsewhere)
        try files.createDirectory(at: hidden, withIntermediateDirectories: true)
        try files.linkItem(at: elsewhere.appending(path: ".stockroom/state"), to: state)
      case .hiddenDirectoryInAnother:
        try files.moveItem(at: place, to: elsewhere)
        try files.createDirectory(at: place, withIntermediateDirectories: false)
        try files.moveItem(at: elsewhere.appending(path: ".stockroom"), to: hidden)
      }
    }
  }

  let parent: TemporaryDirectory
  var place: URL { parent.file("place") }

  init() throws { parent = try TemporaryDirectory() }

  private func open() throws -> DiskStorageEngine { try .disk(directory: .init(url: place)) }

  @Test("Nothing is acknowledged or returned that is not at the path", arguments: Change.allCases)
  func gone(_ change: Change) async throws {
    let engine = try open()
    try await engine.write(data("1"), key: "a")
    #expect(try await engine.read(key: "a") == data("1"))
    try change.make(place)
    await expectError(.io, naming: place.path) { try await engine.write(data("2"), key: "a") }
    await expectError(.io, naming: place.path) { try await engine.write(data("2"), key: "b") }
    await expectError(.io, naming: place.path) {
      try await engine.write([("b", data("2")), ("c", data("2"))])
    }
    await expectError(.io, naming: place.path) { try await engine.remove(key: "a") }
    await expectError(.io, naming: place.path) { try await engine.removeAllData() }
    await expectError(.io, naming: place.path) { try await engine.read(key: "a") }
    await expectError(.io, naming: place.path) { try await engine.read(key: "absent") }
    await expectError(.io, naming: place.path) { try await engine.keyExists("a") }
    await expectError(.io, naming: place.path) { try await engine.createdAt(key: "a") }
    await expectError(.io, naming: place.path) { try await engine.readAllEntries() }
    await expectError(.io, naming: place.path) { try await engine.keyCount() }
    await expectError(.io, naming: place.path) { try await engine.allKeys() }
    await expectError(.io, naming: place.path) { try await engine.scan(.all, limit: 1) }
    try await engine.close()
  }

  @Test(
    "An engine that opens the place afterwards is not affected",
    arguments: Change.allCases.filter { $0 != .linkedCopy }, Durability.allCases)
  func newOwner(_ change: Change, _ durability: Durability) async throws {
    let former = try DiskStorageEngine.disk(directory: .init(url: place), durability: durability)
    try await former.write(data("former"), key: "a")
    try change.make(place)
    let owner = try DiskStorageEngine.disk(directory: .init(url: place), durability: durability)
    try await owner.write(data("owner"), key: "a")
    await expectError(.io) { try await former.write(data("former"), key: "a") }
    await expectError(.io) { try await former.write([("a", data("former")), ("b", data("former"))]) }
    await expectError(.io) { try await former.removeAllData() }
    await expectError(.io) { try await former.read(key: "a") }
    try await former.close()
    try await owner.write([("c", data("owner")), ("d", data("owner"))])
    try await owner.close()

    let again = try open()
    #expect(try await Set(again.allKeys()) == ["a", "c", "d"])
    #expect(try await Set(again.readAllData()) == [data("owner")])
  }

  @Test(
    "A batch is refused if an engine that would have to complete it would not find it",
    arguments: [
      "journal", "staging", "undo",
    ])
  func batches(_ name: String) async throws {
    let engine = try open()
    try await engine.write(data("1"), key: "a")
    try FileManager.default.moveItem(
      at: place.appending(path: ".stockroom/\(name)"), to: parent.file("elsewhere"))
    await expectError(.io, naming: place.path) {
      try await engine.write([("a", data("2")), ("b", data("2"))])
    }
    #expect(try await engine.read(key: "a") == data("1"))
    try FileManager.default.moveItem(
      at: parent.file("elsewhere"), to: place.appending(path: ".stockroom/\(name)"))
    try await engine.write([("a", data("2")), ("b", data("2"))])
    #expect(try await engine.read(keys: ["a", "b"]) == [data("2"), data("2")])
  }

  @Test("The engine works again once the place is back")
  func back() async throws {
    let engine = try open()
    try await engine.write(data("1"), key: "a")
    try FileManager.default.moveItem(at: place, to: parent.file("elsewhere"))
    await expectError(.io) { try await engine.read(key: "a") }
    await expectError(.io) { try await engine.write(data("2"), key: "b") }
    try FileManager.default.moveItem(at: parent.file("elsewhere"), to: place)
    #expect(try await engine.allKeys() == ["a"])
    try await engine.write(data("2"), key: "b")
    #expect(try await engine.read(key: "b") == data("2"))
  }
}
