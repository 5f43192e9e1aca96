import Foundation
import StockroomCore
import TestFixtures
import StockroomFileSystem
import Testing

@Suite("Verifying a directory")
struct VerifyTests {
  let place: TemporaryDirectory
  let engine: DiskStorageEngine

  init() throws {
    place = try TemporaryDirectory()
    engine = try place.open()
  }

  @Test("Intact entries pass verify(), including foreign and replaced files")
  func whole() async throws {
    try await engine.verify()
    try await engine.write([("a", data("1")), ("empty", Data()), ("large", Data(count: 2 << 20))])
    try data("replaced").write(to: place.file("a.entry"), options: .atomic)
    try data("foreign").write(to: place.file("copied.entry"))
    try data("foreign").write(to: place.file("foreign.txt"))
    try await engine.verify()
  }

  @Test(
    "verify() finds truncated and extended files, and entries that are not files", .enabled(if: hasAttributes)
  )
  func corrupted() async throws {
    try await engine.write([("a", data("value")), ("b", data("value"))])
    for length in [4, 6] {
      #expect(truncate(place.file("a.entry").path, off_t(length)) == 0)
      await expectError(.corrupted, naming: "a.entry") { try await engine.verify() }
      try await engine.write(data("value"), key: "a")
      try await engine.verify()
    }
    try FileManager.default.createDirectory(at: place.file("dir.entry"), withIntermediateDirectories: false)
    await expectError(.corrupted, naming: "dir.entry") { try await engine.verify() }
    try FileManager.default.removeItem(at: place.file("dir.entry"))
    try await engine.verify()
    try await engine.close()
    await expectError(.closed) { try await engine.verify() }
  }

  private static var hasAttributes: Bool {
    #if os(Linux)
      true
    #else
      false
    #endif
  }

  @Test("An engine that could not be opened throws the reason from every call")
  func deferredErrors() async throws {
    let file = place.file("plain")
    try data("x").write(to: file)
    let engine = DiskStorageEngine.deferringErrors(directory: .init(url: file))
    #expect(engine.capabilities.contains(.persistent))
    await expectError(naming: file.path) { try await engine.read(key: "a") }
    await expectError(naming: file.path) { try await engine.readAllEntries() }
    await expectError(naming: file.path) { try await engine.write(data("1"), key: "a") }
    await expectError(naming: file.path) { try await engine.verify() }
    try await engine.close()
    let other = DiskStorageEngine.deferringErrors(directory: place.directory)
    try await other.write(data("1"), key: "a")
    #expect(try await self.engine.read(key: "a") == data("1"))
  }
}
