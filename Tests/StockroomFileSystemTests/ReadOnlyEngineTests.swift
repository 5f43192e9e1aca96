import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomFileSystem

@Suite("A read-only engine") struct ReadOnlyEngineTests {
  private let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  private func open() throws -> DiskStorageEngine {
    try DiskStorageEngine(directory: place.directory, access: .readOnly)
  }

  @Test("It creates nothing")
  func makesNothing() throws {
    #expect(throws: StorageError.self) { try open() }
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.url.path) == [])
  }

  @Test("It sees the writes of others, and refuses to write")
  func reads() async throws {
    let writer = try place.open()
    let reader = try open()
    #expect(!reader.capabilities.contains(.changeFeed))
    for value in ["1", "2"] {
      try await writer.write(data(value), key: "key")
      #expect(try await reader.read(key: "key") == data(value))
      #expect(try await reader.scan(.all, limit: nil).map(\.data) == [data(value)])
    }
    #expect(try await reader.withTransaction { try $0.allKeys() } == ["key"])
    try await reader.verify()
    await expectError(.readOnly) { try await reader.write(data("3"), key: "key") }
    await expectError(.readOnly) { try await reader.removeAllData() }
    await expectError(.readOnly) { try await reader.withTransaction { try $0.remove(key: "key") } }
    await expectError(.unsupported) { _ = try await reader.changes() }
    #expect(try await writer.read(key: "key") == data("2"))
  }

  @Test("A batch that a crashed process has left is an error until another engine has completed it")
  func pendingBatch() async throws {
    let engine = try place.open()
    try await engine.write([("a", data("1")), ("b", data("2"))])
    try await engine.close()
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(0, at: .now())
      try connection.journal.begin(Transaction(boundary: boundary, steps: [.remove("a")]))
    }
    connection.release()
    await expectError(.readOnly, naming: "left a batch") { try open() }
    #expect(try await place.open().allKeys() == ["b"])
    #expect(try await open().allKeys() == ["b"])
  }

  @Test("A place that another engine is still creating is locked until it is complete")
  func incompletePlace() async throws {
    try await place.open().close()
    let hidden = place.url.appending(path: ".stockroom")
    for name in ["journal", "staging", "undo"] {
      let (file, moved) = (hidden.appending(path: name), place.parent.appending(path: name))
      try FileManager.default.moveItem(at: file, to: moved)
      await expectError(.locked, naming: "is not complete") { try open() }
      try FileManager.default.moveItem(at: moved, to: file)
    }
    try Data().write(to: hidden.appending(path: "state"))
    await expectError(.locked, naming: "is not complete") { try open() }
    #expect(try await place.open().allKeys() == [])
    #expect(try await open().allKeys() == [])
  }
}
