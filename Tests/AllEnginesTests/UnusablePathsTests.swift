import Foundation
import StockroomCore
import TestFixtures
import StockroomEngines
import Testing

/// Paths that no user can open, not even root.
@Suite struct UnusablePathsTests {
  static let engines = EngineCatalog.onThisMachine.filter { $0.capabilities.contains(.persistent) }.map(
    \.name)

  func opening(_ name: String, at url: URL) async throws -> StorageError {
    let engine = try EngineCatalog.select([name])[0]
    let error = try await #require(throws: StorageError.self) {
      _ = try await engine.open(url, .full)
    }
    #expect(error.description.contains(url.path(percentEncoded: false)) || error.message.contains("/"))
    #expect(error.underlying != nil || error.code == .unsupported || error.code == .corrupted)
    return error
  }

  @Test("A regular file in place of the directory is rejected and unchanged", arguments: engines)
  func plainFile(name: String) async throws {
    let directory = try TemporaryDirectory()
    let file = directory.appending("file")
    try Data("mine".utf8).write(to: file)
    #expect(try await opening(name, at: file).description.contains(file.path))
    #expect(try await opening(name, at: file.appending(path: "below/it")).description.contains(file.path))
    #expect(try Data(contentsOf: file) == Data("mine".utf8))
  }

  #if os(Linux)
    @Test(
      "A directory that cannot be created is rejected with an error that names its path", arguments: engines)
    func noPermission(name: String) async throws {
      #expect(
        try await opening(name, at: URL(filePath: "/proc/stockroom/engine")).description.contains(
          "/proc/stockroom")
      )
    }
  #endif

  @Test("A URL that is not a file path is rejected", arguments: engines)
  func notAFile(name: String) async throws {
    let url = try #require(URL(string: "https://example.com/engine"))
    let error = await #expect(throws: StorageError.self) {
      try await EngineCatalog.select([name])[0].open(url, .full)
    }
    #expect(error?.code == .unsupported)
  }

  @Test("A path with a zero byte is rejected, and nothing is made at the path before it", arguments: engines)
  func zeroByte(name: String) async throws {
    let directory = try TemporaryDirectory()
    for path in ["cut\0off", "cut\0off/below"] {
      #expect(try await opening(name, at: directory.appending(path)).code == .unsupported)
    }
    let below = directory.appending("there")
    try FileManager.default.createDirectory(at: below, withIntermediateDirectories: false)
    #expect(try await opening(name, at: directory.appending("there\0off")).code == .unsupported)
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory.url.path) == ["there"])
    #expect(try FileManager.default.contentsOfDirectory(atPath: below.path).isEmpty)
  }

  @Test("A backup is not made at a path with a zero byte, nor at the path before it", arguments: engines)
  func zeroByteOfBackup(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.appending("engine"), .full)
    if let backedUp = engine as? any BackupEngine {
      let error = await #expect(throws: StorageError.self) {
        try await backedUp.backUp(to: FileManager.Directory(url: directory.appending("cut\0off")))
      }
      #expect(error?.code == .unsupported)
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory.url.path) == ["engine"])
    try await engine.close()
  }

  @Test("A loop of symbolic links is rejected with an error that names its path", arguments: engines)
  func loop(name: String) async throws {
    let directory = try TemporaryDirectory()
    let link = directory.appending("a")
    try FileManager.default.createSymbolicLink(
      atPath: link.path, withDestinationPath: directory.appending("b").path)
    try FileManager.default.createSymbolicLink(
      atPath: directory.appending("b").path, withDestinationPath: link.path)
    #expect(try await opening(name, at: link).description.contains(link.path))
  }
}
