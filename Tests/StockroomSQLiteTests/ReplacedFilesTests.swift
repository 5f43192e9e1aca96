import Foundation
import StockroomCore
import StockroomSQLite
import Testing

/// The files of an open engine are deleted, moved or replaced (rule C6).
@Suite struct ReplacedFilesTests {
  /// An event that affects the files.
  enum Event: String, CaseIterable, Sendable {
    case directoryDeleted, directoryMoved, directoryReplaced, parentMoved
    case databaseDeleted, databaseMoved, databaseReplaced, databaseMovedBehindALink
    case logDeleted, logReplaced, sharedMemoryDeleted, sharedMemoryReplaced

    func happen(to place: TestPlace) async throws {
      let files = FileManager.default
      switch self {
      case .directoryDeleted: try files.removeItem(at: place.url)
      case .directoryMoved: try files.moveItem(at: place.url, to: place.parent.appending(path: "moved"))
      case .directoryReplaced:
        try files.moveItem(at: place.url, to: place.parent.appending(path: "moved"))
        let other = try SQLiteStorageEngine(directory: place.directory)
        try await other.write(data("other"), key: key(0))
        try await other.close()
      case .parentMoved:
        try files.moveItem(at: place.parent, to: place.parent.appendingPathExtension("moved"))
      case .databaseDeleted: try files.removeItem(atPath: place.database)
      case .databaseMoved: try files.moveItem(atPath: place.database, toPath: place.database + ".moved")
      case .databaseReplaced:
        let other = try TestPlace()
        let engine = try SQLiteStorageEngine(directory: other.directory)
        try await engine.write(data("other"), key: key(0))
        try await engine.close()
        #expect(rename(other.database, place.database) == 0)
      case .databaseMovedBehindALink:
        try files.moveItem(atPath: place.database, toPath: place.database + ".moved")
        try files.createSymbolicLink(
          atPath: place.database, withDestinationPath: place.database + ".moved")
      case .logDeleted: try files.removeItem(atPath: place.log)
      case .logReplaced: try replace(place.log)
      case .sharedMemoryDeleted: try files.removeItem(atPath: place.sharedMemory)
      case .sharedMemoryReplaced: try replace(place.sharedMemory)
      }
    }

    private func replace(_ path: String) throws {
      let copy = path + ".copy"
      try FileManager.default.copyItem(atPath: path, toPath: copy)
      #expect(rename(copy, path) == 0)
    }
  }

  @Test(
    "An engine whose files are deleted, moved or replaced writes and reads nothing, and leaves the new files alone",
    arguments: Event.allCases, [false, true])
  func noticed(event: Event, isSettled: Bool) async throws {
    let place = try TestPlace()
    let moved = place.parent.appendingPathExtension("moved")
    defer { try? FileManager.default.removeItem(at: moved) }
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write([(key: key(0), data: data("old")), (key: key(1), data: Data(count: 5_000))])
    #expect(try await engine.read(key: key(0)) == data("old"))
    // The timestamps of the file system advance in steps of up to ten milliseconds. Once the last change of
    // the directory is older than that, the engine caches its check of the files.
    let end = ContinuousClock.now + .milliseconds(isSettled ? 120 : 0)
    while ContinuousClock.now < end { _ = try await engine.read(key: key(0)) }

    try await event.happen(to: place)
    let before = try? place.contents()
    if event == .parentMoved {
      // Reads detect changes of parent directories within a few milliseconds, and writes detect them at once.
      await expectError(.io, naming: place.database) { try await engine.write(data("new"), key: key(0)) }
      while (try? await engine.read(key: key(0))) != nil {}
    }
    await expectError(.io, naming: place.database) { try await engine.read(key: key(0)) }
    await expectError(.io, naming: place.database) { try await engine.write(data("new"), key: key(0)) }
    await expectError(.io, naming: place.database) { try await engine.write(data("new"), key: key(2)) }
    await expectError(.io, naming: place.database) { try await engine.removeAllData() }
    await expectError(.io, naming: place.database) { try await engine.read(key: key(1)) }
    await expectError(.io, naming: place.database) { try await engine.read(key: key(9)) }
    await expectError(.io, naming: place.database) { try await engine.readAllData() }
    await expectError(.io, naming: place.database) { try await engine.read(keys: [key(0)]) }
    await expectError(.io, naming: place.database) { try await engine.keyCount() }
    await expectError(.io, naming: place.database) { try await engine.scan(.all, limit: 1) }
    await expectError(.io, naming: place.database) { try await engine.keyExists(key(0)) }
    await expectError(.io, naming: place.database) { try await engine.createdAt(key: key(0)) }
    try await engine.close()
    #expect((try? place.contents()) == before)
  }

  @Test("Concurrent readers of an engine whose database was replaced never see the other database's values")
  func concurrentReaders() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    try FileManager.default.removeItem(at: place.url)
    let other = try SQLiteStorageEngine(directory: place.directory)
    try await other.write(data("other"), key: key(0))
    try await withThrowingTaskGroup { group in
      for _ in 0..<50 {
        group.addTask {
          await expectError(.io, naming: place.database) { try await engine.read(key: key(0)) }
          await expectError(.io, naming: place.database) { try await engine.readAllData() }
        }
      }
      try await group.waitForAll()
    }
    try await other.close()
    try await engine.close()
  }

  @Test(
    "An engine whose directory was deleted does not disturb the engine that has it now, not even by closing")
  func otherEngine() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    try FileManager.default.removeItem(at: place.url)
    let other = try SQLiteStorageEngine(directory: place.directory)
    try await other.write(data("other"), key: key(0))
    await expectError(.io, naming: place.database) { try await engine.write(data("new"), key: key(1)) }
    try await engine.close()
    #expect(try size(of: place.log) != nil)
    #expect(try size(of: place.sharedMemory) != nil)
    try await other.write(data("more"), key: key(2))
    try await other.close()
    let again = try SQLiteStorageEngine(directory: place.directory)
    #expect(try await again.allKeys() == [key(0), key(2)])
    #expect(try await again.read(key: key(0)) == data("other"))
    try await again.close()
  }

  @Test("An engine that is released after its log was replaced does not checkpoint the log")
  func droppedWithoutClosing() async throws {
    try #require(FaultyFiles.areInstalled)
    let place = try TestPlace()
    var engine: SQLiteStorageEngine? = try SQLiteStorageEngine(directory: place.directory)
    try await engine?.write(data("old"), key: key(0))
    let before = try Data(contentsOf: URL(filePath: place.database))
    try FileManager.default.removeItem(atPath: place.log)
    try Data().write(to: URL(filePath: place.log))
    let (closed, continuation) = AsyncStream<Void>.makeStream()
    let close = FaultyFiles.begin(.close, in: try place.directory.resolvedPath) { file in
      if file.hasSuffix(".sqlite3") { continuation.yield() }
      return false
    }
    engine = nil
    for await _ in closed { break }
    FaultyFiles.end(close)
    #expect(try Data(contentsOf: URL(filePath: place.database)) == before)
    #expect(try size(of: place.log) == 0)
  }

  @Test("A directory that is moved away and back is readable and writable again")
  func movedBack() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    let elsewhere = place.parent.appending(path: "elsewhere")
    try FileManager.default.moveItem(at: place.url, to: elsewhere)
    await expectError(.io, naming: place.database) { try await engine.read(key: key(0)) }
    await expectError(.io, naming: place.database) { try await engine.write(data("lost"), key: key(0)) }
    try FileManager.default.moveItem(at: elsewhere, to: place.url)
    #expect(try await engine.read(key: key(0)) == data("old"))
    try await engine.write(data("new"), key: key(0))
    try await engine.close()
    let again = try SQLiteStorageEngine(directory: place.directory)
    #expect(try await again.read(key: key(0)) == data("new"))
    try await again.close()
  }

  @Test("Connections opened while another database was in the place are not used once the original is back")
  func openedMeanwhile() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    let elsewhere = place.parent.appending(path: "elsewhere")
    try FileManager.default.moveItem(at: place.url, to: elsewhere)
    let other = try SQLiteStorageEngine(directory: place.directory)
    try await other.write(data("other"), key: key(0))
    await expectError(.io, naming: place.database) { try await engine.read(key: key(0)) }
    await expectError(.io, naming: place.database) { try await engine.readAllData() }
    await expectError(.io, naming: place.database) { try await engine.verify() }
    await expectError(.io, naming: place.database) { _ = try await engine.changes() }
    try await other.close()
    try FileManager.default.removeItem(at: place.url)
    try FileManager.default.moveItem(at: elsewhere, to: place.url)
    #expect(try await engine.read(key: key(0)) == data("old"))
    #expect(try await engine.readAllData() == [data("old")])
    try await engine.write(data("new"), key: key(0))
    #expect(try await engine.read(key: key(0)) == data("new"))
    #expect(try await engine.readAllData() == [data("new")])
    try await engine.close()
  }

  @Test("Creating and removing other files in the directory does not disturb reads and writes")
  func otherFiles() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    for number in 0..<50 {
      let other = place.url.appending(path: "other-\(number)")
      try Data([1]).write(to: other)
      try await engine.write(data("\(number)"), key: key(0))
      #expect(try await engine.read(key: key(0)) == data("\(number)"))
      try FileManager.default.removeItem(at: other)
      #expect(try await engine.read(key: key(0)) == data("\(number)"))
    }
    try await engine.close()
  }

  @Test(
    "No connection is made to another database in the former place of a directory that was moved with its link"
  )
  func movedBehindLink() async throws {
    let place = try TestPlace()
    let files = FileManager.default
    let (first, second) = (place.parent.appending(path: "first"), place.parent.appending(path: "second"))
    try files.createDirectory(at: first, withIntermediateDirectories: true)
    let link = place.parent.appending(path: "place", directoryHint: .notDirectory)
    try files.createSymbolicLink(at: link, withDestinationURL: first)
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("ours"), key: key(0))
    try files.moveItem(at: first, to: second)
    try files.removeItem(at: link)
    try files.createSymbolicLink(at: link, withDestinationURL: second)
    try files.createDirectory(at: first, withIntermediateDirectories: true)
    let other = try SQLiteStorageEngine(directory: FileManager.Directory(url: first))
    try await other.write(data("theirs"), key: key(0))
    try await withThrowingTaskGroup { group in
      for _ in 0..<64 {
        group.addTask {
          do {
            let found = try await engine.read(key: key(0))
            #expect(found == data("ours"))
          } catch let error as StorageError {
            #expect(error.code == .io)
          }
        }
      }
      try await group.waitForAll()
    }
    await expectError(.io, naming: place.database) { try await engine.verify() }
    for engine in [engine, other] { try await engine.close() }
  }

  @Test(
    "A symbolic link to the directory may be changed to reach it by another path, but not to reach another directory"
  )
  func linkedDirectory() async throws {
    let place = try TestPlace()
    let files = FileManager.default
    let (first, second) = (place.parent.appending(path: "first"), place.parent.appending(path: "second"))
    for directory in [first, second] {
      try files.createDirectory(at: directory, withIntermediateDirectories: true)
    }
    let link = place.parent.appending(path: "place", directoryHint: .notDirectory)
    try files.createSymbolicLink(at: link, withDestinationURL: first)
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    try files.removeItem(at: link)
    try files.createSymbolicLink(at: link, withDestinationURL: second)
    await expectError(.io, naming: place.database) { try await engine.write(data("new"), key: key(0)) }
    try await engine.close()
    #expect(try files.contentsOfDirectory(atPath: second.path(percentEncoded: false)) == [])
  }
}
