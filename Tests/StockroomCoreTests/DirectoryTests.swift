import Foundation
import StockroomCore
import TestFixtures
import Testing

@Suite struct DirectoryTests {
  @Test("A path can be appended to each directory")
  func appending() {
    typealias Directory = FileManager.Directory
    let pairs: [(Directory, Directory)] = [
      (.defaultStorageDirectory, .defaultStorageDirectory(appendingPath: "a/b")),
      (.documents, .documents(appendingPath: "a/b")),
      (.caches, .caches(appendingPath: "a/b")),
      (.temporary, .temporary(appendingPath: "a/b")),
      (.applicationSupport, .applicationSupport(appendingPath: "a/b")),
    ]
    for (place, below) in pairs {
      #expect(below.url.path.hasPrefix(place.url.path))
      #expect(below.url.path.hasSuffix("a/b"))
    }
    #expect(Set(pairs.dropLast().map(\.0)).count == 4)
  }

  @Test("A program's own directories are named after it, and differ from all others")
  func ofProgram() {
    let directory = FileManager.Directory.caches.ofProgram
    #expect(directory.path.hasSuffix("/\(FileManager.Directory.pathComponent(for: Program.name))/Stockroom"))
    #expect(
      directory.url.deletingLastPathComponent().deletingLastPathComponent().path
        == FileManager.Directory.caches.path)
  }

  @Test("Every text has a distinct file name")
  func pathComponents() {
    let texts = [
      "", ".", "..", "a", "A", "a.b", ".a", "%2Ea", "a/b", "a%2Fb", "é", "e\u{301}", "a\0b", "a b", "%", "%%",
      "%00",
      String(repeating: "x", count: 200), String(repeating: "x", count: 201),
      String(repeating: "é", count: 100),
    ]
    let names = texts.map { FileManager.Directory.pathComponent(for: $0) }
    #expect(Set(names).count == texts.count)
    for name in names {
      #expect((1...200).contains(name.utf8.count))
      #expect(!name.contains("/") && !name.hasPrefix("."))
      #expect(name.utf8.allSatisfy { (0x21...0x7E).contains($0) })
    }
    #expect(FileManager.Directory.pathComponent(for: "com.example.my-app_2") == "com.example.my-app_2")
  }

  @Test("The path is absolute and has no trailing slash")
  func path() {
    #expect(FileManager.Directory(url: URL(filePath: "/a/b c/")).path == "/a/b c")
    #expect(FileManager.Directory(url: URL(filePath: "/")).path == "/")
    #expect(
      FileManager.Directory(url: URL(filePath: "x/y")).path
        == FileManager.default.currentDirectoryPath + "/x/y")
  }

  @Test("create() makes parent directories, and accepts an existing directory")
  func create() throws {
    let place = FileManager.Directory.temporary(appendingPath: "stockroom-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: place.url) }
    let below = FileManager.Directory(url: place.url.appending(path: "a/b/"))
    try below.create()
    try below.create()
    try Data().write(to: place.url.appending(path: "file"))
    for path in ["file", "file/below"] {
      let error = #expect(throws: StorageError.self) {
        try FileManager.Directory(url: place.url.appending(path: path)).create()
      }
      #expect(error?.description.contains(place.path + "/file") == true)
    }
  }

  @Test(
    "The directory belongs to its owner alone, or to the group if requested, whatever the umask is",
    arguments: [FilePermissions.owner, .group])
  func permissions(_ permissions: FilePermissions) throws {
    let place = FileManager.Directory.temporary(appendingPath: "stockroom-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: place.url) }
    let below = FileManager.Directory(url: place.url.appending(path: "below/"))
    try below.create(permissions)
    for path in [place.path, below.path] {
      let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
      #expect(mode == (permissions == .owner ? 0o700 : 0o770))
    }
  }

  @Test(
    "A directory, which cannot be hard-linked, is renamed to its final name if that is free, and otherwise stays"
  )
  func name() throws {
    let place = FileManager.Directory.temporary(appendingPath: "stockroom-\(UUID().uuidString)")
    try place.create()
    defer { try? FileManager.default.removeItem(at: place.url) }
    let path = place.path + "/named"
    #expect(throws: StorageError.self) { try FileManager.Directory.name(place.path + "/missing", path) }
    #expect(!FileManager.default.fileExists(atPath: path))
    // No file system supports hard links to directories.
    for unfinished in ["first", "second"].map({ "\(place.path)/\($0)" }) {
      try FileManager.default.createDirectory(atPath: unfinished, withIntermediateDirectories: false)
      try FileManager.Directory.name(unfinished, path)
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.path).sorted() == ["named", "second"])
  }

  @Test("An app group that this program does not belong to has no container")
  func noContainer() {
    #expect(throws: StorageError.self) {
      try FileManager.Directory.sharedContainer(forAppGroupIdentifier: "")
    }
    #if canImport(Darwin)
      #expect(throws: StorageError.self) {
        try FileManager.Directory.sharedContainer(forAppGroupIdentifier: "group.nobody.has.this")
      }
    #endif
  }

  #if os(Linux)
    @Test("A directory can be created below one that may be entered but not read", .ownThreads)
    func unreadableParent() async throws {
      await #expect(processExitsWith: .success) {
        let parent = FileManager.Directory.temporary(appendingPath: "stockroom-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: parent.url, withIntermediateDirectories: false)
        defer { rmdir(parent.path) }
        // Root may read every directory.
        chmod(parent.path, 0o733)
        chown(parent.path, 0, 0)
        if geteuid() == 0 { seteuid(65534) } else { chmod(parent.path, 0o333) }
        let below = FileManager.Directory(url: parent.url.appending(path: "below/"))
        try below.create()
        try below.create()
        rmdir(below.path)
        seteuid(getuid())
      }
    }

    @Test("Where no directory can be created, opening throws and does not retry forever")
    func impossible() {
      #expect(throws: StorageError.self) {
        try FileManager.Directory(url: URL(filePath: "/proc/stockroom/a")).create()
      }
    }

    @Test("The directories are those of the XDG base directory specification", .ownThreads)
    func xdg() async throws {
      // In a separate process, because the environment belongs to the whole process.
      await #expect(processExitsWith: .success) {
        setenv("XDG_DATA_HOME", "/data", 1)
        setenv("XDG_CACHE_HOME", "relative/is/ignored", 1)
        unsetenv("XDG_DOCUMENTS_DIR")
        setenv("HOME", "/home/somebody", 1)
        precondition(FileManager.Directory.defaultStorageDirectory.url.path == "/data")
        precondition(FileManager.Directory.caches.url.path == "/home/somebody/.cache")
        precondition(FileManager.Directory.documents.url.path == "/home/somebody/Documents")
        precondition(FileManager.Directory.applicationSupport(appendingPath: "a").url.path == "/data/a")
        let group = try FileManager.Directory.sharedContainer(forAppGroupIdentifier: "group.com.example")
        precondition(group.url.path == "/data/group.com.example")
        let below = try FileManager.Directory.sharedContainer(
          forAppGroupIdentifier: "../a/b", appendingPath: "c")
        precondition(below.path == "/data/%2E.%2Fa%2Fb/c")
      }
    }
  #endif
}
