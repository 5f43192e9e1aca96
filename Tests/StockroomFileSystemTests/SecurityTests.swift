import Foundation
import StockroomCore
import TestFixtures
import StockroomFileSystem
import Testing

@Suite("Access by other users")
struct SecurityTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  /// The permissions of everything at the path and below it.
  private func modes(of root: URL) throws -> [String: Int] {
    var modes: [String: Int] = [:]
    for path in try [""] + FileManager.default.subpathsOfDirectory(atPath: root.path) {
      var status = stat()
      try #require(lstat(root.appending(path: path).path, &status) == 0)
      modes[path] = Int(status.st_mode & 0o7777)
    }
    return modes
  }

  @Test(
    "Files and directories belong to their owner alone, or to the group",
    arguments: [
      FilePermissions.owner, .group,
    ])
  func modes(_ permissions: FilePermissions) async throws {
    let root = place.file("new/place")
    let engine = try DiskStorageEngine.disk(directory: .init(url: root), permissions: permissions)
    let long = CacheKey(verbatim: String(repeating: "l", count: 300))
    try await engine.write(data("1"), key: "a")
    try await engine.write([("b", data("1")), (long, data("1"))])
    let (file, directory) = permissions == .owner ? (0o600, 0o700) : (0o660, 0o770)
    for (path, mode) in try modes(of: place.file("new")) {
      let isFile = path.hasSuffix(".entry") || path.hasSuffix("state") || path.hasSuffix("journal")
      #expect(mode == (isFile ? file : directory), "\(path)")
    }
  }

  @Test(
    "Without extended attributes, no metadata is accessible to others", .enabled(if: canMountRAM))
  func sidecarModes() async throws {
    #if os(Linux)
      let system = try SmallDisk(type: "ramfs")
      let engine = try system.open()
      try await engine.write([
        ("a", data("1")), (CacheKey(verbatim: String(repeating: "l", count: 300)), data("1")),
      ])
      for (path, mode) in try modes(of: system.url.appending(path: "store")) {
        #expect(mode & 0o77 == 0, "\(path)")
      }
    #endif
  }

  private static var canMountRAM: Bool {
    #if os(Linux)
      SmallDisk.isPossible
    #else
      false
    #endif
  }

  @Test(
    "A process with read access only that holds the lock delays no read, and a write only for the timeout"
  )
  func mereReader() async throws {
    let engine = try DiskStorageEngine.disk(directory: place.directory, lockTimeout: .milliseconds(50))
    try await engine.write(data("1"), key: "a")
    let lock = open(place.file(".stockroom/state").path, O_RDONLY | O_CLOEXEC)
    try #require(lock >= 0 && flock(lock, LOCK_EX) == 0)
    await expectError(.locked, naming: place.url.path) { try await engine.write(data("2"), key: "a") }
    await expectError(.locked, naming: place.url.path) { try await engine.removeAllData() }
    let again = try DiskStorageEngine.disk(directory: place.directory, lockTimeout: .milliseconds(50))
    for engine in [engine, again] {
      #expect(try await engine.read(key: "a") == data("1"))
      #expect(try await engine.readAllEntries().map(\.key) == ["a"])
      #expect(try await engine.scan(.all, limit: nil).map(\.key) == ["a"])
    }
    // Once the lock is released, writes succeed.
    try #require(flock(lock, LOCK_UN) == 0)
    close(lock)
    try await again.write(data("2"), key: "a")
    #expect(try await engine.read(key: "a") == data("2"))
  }

  @Test(
    "A file of the engine that is a hard link to another file is refused and not written",
    arguments: [
      "journal", "state",
    ])
  func hardLinks(_ name: String) async throws {
    let victim = place.file("victim")
    for contents in [Data(), data("precious")] {
      try contents.write(to: victim)
      try FileManager.default.createDirectory(at: place.file(".stockroom"), withIntermediateDirectories: true)
      try FileManager.default.linkItem(at: victim, to: place.file(".stockroom/\(name)"))
      await expectError(.corrupted, naming: ".stockroom/\(name)") { try place.open() }
      #expect(try Data(contentsOf: victim) == contents)
      try FileManager.default.removeItem(at: place.file(".stockroom"))
    }
  }

  @Test(
    "A pipe, a directory or a link in place of a file or directory of the engine is refused at once",
    arguments: [
      "journal", "state", "staging", "undo",
    ])
  func planted(_ name: String) async throws {
    let hidden = place.file(".stockroom")
    let path = hidden.appending(path: name)
    let outside = try TemporaryDirectory()
    let isFile = ["journal", "state"].contains(name)
    let plants: [() throws -> Void] = [
      { try #require(mkfifo(path.path, 0o600) == 0) },
      { try FileManager.default.createSymbolicLink(at: path, withDestinationURL: outside.file("x")) },
      { try FileManager.default.createSymbolicLink(at: path, withDestinationURL: outside.url) },
      {
        if isFile {
          try FileManager.default.createDirectory(at: path, withIntermediateDirectories: false)
        } else {
          try Data().write(to: path)
        }
      },
    ]
    for (number, plant) in plants.enumerated() {
      try FileManager.default.createDirectory(at: hidden, withIntermediateDirectories: true)
      try plant()
      await expectError(.corrupted, naming: ".stockroom/\(name)") {
        try place.open()
      }
      #expect(try FileManager.default.contentsOfDirectory(atPath: outside.url.path) == [], "\(number)")
      try FileManager.default.removeItem(at: hidden)
    }
  }
}
