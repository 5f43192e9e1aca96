import Foundation
import StockroomCore
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Backups of an engine in use") struct BackupTests {
  @Test(
    "A backup opens as the same engine, with values, times and order, and is written further",
    arguments: backupEngineNames)
  func opening(name: String) async throws {
    let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
    let engine = try await openForBackup(name, place.url)
    try await fill(engine)
    let expected = try await engine.readAllEntries()
    let backup = backups.appending("new/it's a backup")
    try await engine.backUp(to: .init(url: backup))
    #expect(try names(in: backups.appending("new")) == ["it's a backup"])
    // Later writes of the engine are not in the backup.
    try await engine.write(Data(), key: key("later"))
    try await engine.close()

    let copy = try await open(name, backup)
    try await copy.verify()
    #expect(try await copy.readAllEntries() == expected)
    try await copy.write(Data("more".utf8), key: key("0 more"))
    #expect(try await copy.readAllEntries().dropLast() == expected[...])
    #expect(try await copy.readAllEntries().last?.key == key("0 more"))
    try await copy.verify()
    try await copy.close()
  }

  @Test("A backup of an empty engine opens as an empty one", arguments: backupEngineNames)
  func empty(name: String) async throws {
    let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
    let engine = try await openForBackup(name, place.url)
    try await engine.backUp(to: backups.directory)
    let copy = try await open(name, backups.url)
    #expect(try await copy.keyCount() == 0)
    try await copy.write(Data(), key: key("1"))
    try await copy.close()
    try await engine.close()
  }

  @Test("Every backup of an engine under load is one snapshot", arguments: backupEngineNames)
  func underLoad(name: String) async throws {
    let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
    let engine = try await openForBackup(name, place.url)
    try await Accounts.open(in: engine)
    try await Accounts.whileMoving(in: engine) {
      for number in 0..<5 { try await engine.backUp(to: .init(url: backups.appending("\(number)"))) }
    }
    #expect(try await Accounts.sum(in: engine) == Accounts.sum)
    for number in 0..<5 {
      let copy = try await open(name, backups.appending("\(number)"))
      try await copy.verify()
      #expect(try await Accounts.sum(in: copy) == Accounts.sum)
      try await copy.close()
    }
    try await engine.close()
  }

  @Test("The name of a backup may be as long as names can be", arguments: backupEngineNames)
  func longName(name: String) async throws {
    let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
    let engine = try await openForBackup(name, place.url)
    try await engine.backUp(to: .init(url: backups.appending(String(repeating: "é", count: 127))))
    #expect(try names(in: backups.url).map(\.utf8.count) == [254])
    try await engine.close()
  }

  @Test("A backup is its owner's alone", arguments: backupEngineNames)
  func permissions(name: String) async throws {
    let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
    let engine = try await openForBackup(name, place.url)
    try await fill(engine, largest: 10_000)
    try await engine.backUp(to: .init(url: backups.appending("backup")))
    for (path, mode) in try modes(below: backups.appending("backup")) {
      #expect(mode & 0o077 == 0, "\(path)")
    }
    try await engine.close()
  }

  @Test(
    "What exists at the path is left unchanged, and an empty directory is used", arguments: backupEngineNames)
  func inTheWay(name: String) async throws {
    let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
    let engine = try await openForBackup(name, place.url)
    try await engine.write(Data("1".utf8), key: key("1"))
    try await engine.backUp(to: backups.directory)
    let before = try modes(below: backups.url)
    await expectError(.unsupported) { try await engine.backUp(to: backups.directory) }
    await expectError(.unsupported) { try await engine.backUp(to: place.directory) }
    try Data("mine".utf8).write(to: backups.beside("file"))
    await expectError(.unsupported) { try await engine.backUp(to: .init(url: backups.beside("file"))) }
    #expect(try Data(contentsOf: backups.beside("file")) == Data("mine".utf8))
    #expect(try modes(below: backups.url) == before)
    #expect(try names(in: backups.parent) == ["file", "place"])
    try await engine.close()
    await expectError(.closed) { try await engine.backUp(to: .init(url: backups.beside("closed"))) }
    #expect(try names(in: backups.parent) == ["file", "place"])
  }

  @Test("A backup that is cancelled leaves nothing", arguments: backupEngineNames)
  func cancelling(name: String) async throws {
    let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
    let engine = try await openForBackup(name, place.url)
    try await fill(engine, largest: 10_000)
    let backup = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await engine.backUp(to: .init(url: backups.appending("backup")))
    }
    await #expect(throws: CancellationError.self) { try await backup.value }
    #expect(try names(in: backups.url).isEmpty)
    try await engine.close()
  }

  #if os(Linux)
    @Test("A backup is made in a directory that may be entered and written but not read", .ownThreads)
    func unreadableParent() async throws {
      let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
      let paths = [place.url.path, backups.url.path]
      await #expect(processExitsWith: .success) { [paths = paths as [String]] in
        // Root may read every directory.
        for path in paths + [URL(filePath: paths[0]).deletingLastPathComponent().path] { chmod(path, 0o777) }
        chmod(URL(filePath: paths[1]).deletingLastPathComponent().path, 0o777)
        if geteuid() == 0 { seteuid(65534) }
        let engine = try await openForBackup("files", URL(filePath: paths[0]))
        try await engine.write(Data("1".utf8), key: key("1"))
        if getuid() == 0 { seteuid(0) }
        chmod(paths[1], 0o333)
        if getuid() == 0 { seteuid(65534) }
        try await engine.backUp(to: .init(url: URL(filePath: paths[1]).appending(path: "backup")))
        try await engine.close()
        seteuid(getuid())
        chmod(paths[1], 0o777)
      }
      #expect(try names(in: backups.url) == ["backup"])
    }
  #endif

  #if os(Linux) || os(macOS)
    @Test(
      "A process that is killed while it backs up leaves nothing under the name of the backup", .ownThreads,
      arguments: backupEngineNames)
    func killing(name: String) async throws {
      let (place, backups) = (try TemporaryDirectory(), try TemporaryDirectory())
      let engine = try await openForBackup(name, place.url)
      for number in 0..<20 { try await engine.write(Data(count: 1_000_000), key: key("\(number)")) }
      try await engine.close()
      let paths = [name, place.url.path, backups.url.path]
      await #expect(processExitsWith: .signal(SIGKILL)) { [paths = paths as [String]] in
        let engine = try await openForBackup(paths[0], URL(filePath: paths[1]))
        let backups = URL(filePath: paths[2])
        let backup = Task { try await engine.backUp(to: .init(url: backups.appending(path: "backup"))) }
        // As soon as it has begun.
        while try names(in: backups).isEmpty { await Task.yield() }
        kill(getpid(), SIGKILL)
        try await backup.value
      }
      for left in try names(in: backups.url) {
        #expect(left.hasPrefix(".backup.partial-") || left == "backup")
      }
      // A backup that was completed before the process was killed has all entries.
      if try names(in: backups.url).contains("backup") {
        let copy = try await open(name, backups.appending("backup"))
        #expect(try await copy.keyCount() == 20)
        try await copy.close()
      }
      let again = try await openForBackup(name, place.url)
      try await again.backUp(to: .init(url: backups.appending("another")))
      try await again.close()
      #expect(try names(in: backups.url).contains("another"))
    }
  #endif
}

#if os(Linux)
  @Suite(
    "Backups and archives on full disks",
    .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
  struct FullDiskTests {
    @Test(
      "A backup for which there is no room throws diskFull and leaves nothing", arguments: backupEngineNames)
    func backup(name: String) async throws {
      let place = try TemporaryDirectory()
      let engine = try await openForBackup(name, place.url)
      for number in 0..<30 { try await engine.write(incompressible(200_000), key: key("\(number)")) }
      let disk = try SmallDisk("size=4m")
      let error = await expectError(.diskFull) { try await engine.backUp(to: disk.directory) }
      // The error does not name the unfinished backup, which has been removed.
      #expect(error?.message.contains(".partial-") == false, "\(String(describing: error))")
      #expect(try names(in: disk.url).isEmpty)
      #expect(try await engine.keyCount() == 30)
      try await engine.close()
    }

    @Test(
      "An archive for which there is no room throws diskFull, leaves nothing, and keeps the one that it would replace"
    )
    func archive() async throws {
      let disk = try SmallDisk("size=2m")
      let place = try TemporaryDirectory()
      let engine = try await open("memory", place.url)
      try await engine.write(Data("1".utf8), key: key("1"))
      let archive = disk.url.appending(path: "archive")
      try await engine.dump(to: archive)
      let before = try Data(contentsOf: archive)
      try await fill(engine)
      await expectError(.diskFull) { try await engine.dump(to: archive, replacing: true) }
      await expectError(.diskFull) { try await engine.dump(to: disk.url.appending(path: "another")) }
      #expect(try names(in: disk.url) == ["archive"])
      #expect(try Data(contentsOf: archive) == before)
    }
  }
#endif
