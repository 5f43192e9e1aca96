import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomFileSystem

/// Most tests stop a batch at some point, using the engine's own code, then reopen the directory.
@Suite("An interrupted batch")
struct CrashTests {
  static let long = CacheKey(verbatim: String(repeating: "long/", count: 80))
  static let keys: [CacheKey] = ["created", long, "replaced", "removed", "kept"]

  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  private func prepare() async throws {
    let engine = try place.open()
    for key in ["replaced", "removed", "kept"] as [CacheKey] { try await engine.write(data("old"), key: key) }
    try await engine.close()
  }

  /// Stages two new entries and a replacement.
  private func stage(_ connection: DiskConnection) throws -> Transaction {
    let boundary = try connection.reserveSequenceNumbers(3, at: .now())
    for number in 0..<3 {
      let header = EntryHeader(createdAt: .now(), sequence: boundary + UInt64(number) + 1)
      try connection.stage(
        data("new"), EntryMetadata(header: header, size: 3),
        as: StagedName(boundary: boundary, number: number),
        synchronized: true)
    }
    return Transaction(
      boundary: boundary,
      steps: [
        .create("created", staged: 0), .create(Self.long, staged: 1), .replace("replaced", staged: 2),
        .remove("removed"),
      ])
  }

  private func state(_ engine: DiskStorageEngine) async throws -> [String?] {
    var values: [String?] = []
    for key in Self.keys {
      values.append(try await engine.read(key: key).map { String(decoding: $0, as: UTF8.self) })
    }
    return values
  }

  private let before = [nil, nil, "old", "old", "old"]
  private let after = ["new", "new", "new", nil, "old"]

  private func expectNothingLeft() throws {
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.file(".stockroom/staging").path) == [])
  }

  @Test(
    "It is completed if it was in the journal, however many steps had been done", arguments: 0...4,
    [false, true])
  func completed(_ steps: Int, _ isMarked: Bool) async throws {
    try await prepare()
    let bystander = try place.open()
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let transaction = try stage(connection)
      try connection.journal.begin(transaction)
      if isMarked { try connection.setUnstable(true) }
      for step in transaction.steps.prefix(steps) {
        switch step {
        case .create(let key, let number), .replace(let key, let number):
          try connection.moveIn(StagedName(boundary: transaction.boundary, number: number), to: FileName(key))
        case .remove(let key): try connection.removeEntry(FileName(key))
        case .removeAll: break
        }
      }
    }
    connection.release()

    if isMarked { #expect(try await state(bystander) == after) }
    let engine = try place.open()
    #expect(try await state(engine) == after)
    #expect(try await state(bystander) == after)
    try expectNothingLeft()
  }

  @Test(
    "The journal is synced before another engine applies it, because the process that wrote it may have died before"
  )
  func unsyncedJournal() async throws {
    try await prepare()
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    let other = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock { try connection.journal.begin(try stage(connection)) }
    connection.release()

    try other.state.lock(queue: other.journal.file, timeout: .seconds(60))
    let error = #expect(throws: StorageError.self) {
      try other.completePending { _ in throw StorageError(.io, "In the test.") }
    }
    #expect(error?.message == "In the test.")
    var syncs = 0
    try other.completePending { file in
      #expect(file === other.journal.file)
      for (key, value) in zip(Self.keys, before) {
        #expect(try other.value(of: FileName(key)) == value.map { data($0) })
      }
      #expect(try other.journal.read() != nil)
      try file.synchronize()
      syncs += 1
    }
    #expect(syncs == 1)
    try other.completePending { _ in syncs += 1 }
    #expect(syncs == 1)
    other.state.unlock()
    other.release()
    #expect(try await state(place.open()) == after)
    try expectNothingLeft()
  }

  @Test("It is rolled back if it was not completely in the journal")
  func rolledBack() async throws {
    try await prepare()
    for length in [0, 8, 31, 32, 40, 60, 400] {
      let connection = try DiskConnection(directory: place.url.path, durability: .full)
      try connection.withLock {
        try connection.journal.begin(try stage(connection))
        try connection.journal.file.truncate(to: length)
      }
      connection.release()
      let engine = try place.open()
      #expect(try await state(engine) == before)
      try expectNothingLeft()
      try await engine.write([("kept", data("old")), ("other", data("new"))])
    }
  }

  @Test("A journal with changed bytes is ignored")
  func corrupted() async throws {
    try await prepare()
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock { try connection.journal.begin(try stage(connection)) }
    connection.release()
    let journal = place.file(".stockroom/journal")
    let original = try Data(contentsOf: journal)
    for offset in stride(from: 0, to: 460, by: 7) {
      var bytes = original
      bytes[offset] ^= 0x40
      let handle = try FileHandle(forWritingTo: journal)
      try handle.write(contentsOf: bytes)
      try handle.close()
      let engine = try place.open()
      #expect(try await state(engine) == before, "byte \(offset)")
    }
  }

  @Test("A journal that reappears because its removal was lost undoes no later write")
  func reappeared() async throws {
    let engine = try place.open()
    try await engine.write(data("old"), key: "kept")
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    let transaction = try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(0, at: .now())
      let transaction = Transaction(
        boundary: boundary, steps: [.remove("kept"), .remove("other"), .removeAll])
      try connection.journal.begin(transaction)
      try connection.complete(transaction, isReplay: false)
      return transaction
    }
    try await engine.write(data("later"), key: "kept")
    try connection.withLock { try connection.journal.begin(transaction) }
    connection.release()
    #expect(try await place.open().read(key: "kept") == data("later"))
  }

  @Test("A journal that reappears removes no file that another program has put there since")
  func reappearedBeforeOthers() async throws {
    let engine = try place.open()
    for key in ["a", "b"] as [CacheKey] { try await engine.write(data("old"), key: key) }
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    for steps in [[.remove("a"), .remove("b")], [.removeAll]] as [[Transaction.Step]] {
      let transaction = try connection.withLock {
        let boundary = try connection.reserveSequenceNumbers(0, at: .now())
        let transaction = Transaction(boundary: boundary, steps: steps)
        try connection.journal.begin(transaction)
        try connection.complete(transaction, isReplay: false)
        return transaction
      }
      #expect(try await engine.keyCount() == 0)
      // File timestamps advance in ticks.
      repeat {
        try data("theirs").write(to: place.file("a.entry"))
      } while try UInt64(connection.entries.status(of: FileName("a"))?.modified.nanoseconds ?? 0)
        <= transaction.boundary
      try connection.withLock { try connection.journal.begin(transaction) }
      #expect(try await place.open().readAllData() == [data("theirs")])
    }
    connection.release()
  }

  @Test("Its end is synced before a later write is acknowledged, and only once")
  func end() async throws {
    let engine = try place.open()
    try await engine.write([("a", data("1")), ("b", data("1"))])
    let journal = try engine.connection.journal.file
    let original = try #require(try FileDescriptor.openFile(atPath: journal.path))
    // A descriptor that cannot be synced.
    let null = try #require(try FileDescriptor.openFile(atPath: "/dev/null"))
    try #require(dup2(null.number, journal.number) >= 0)
    await expectError(.io) { try await engine.write(data("2"), key: "a") }
    await expectError(.io) { try await engine.remove(key: "b") }
    #expect(try await engine.readAllData() == [data("1"), data("1")])
    try #require(dup2(original.number, journal.number) >= 0)
    try await engine.write(data("2"), key: "a")
    try #require(dup2(null.number, journal.number) >= 0)
    try await engine.write(data("3"), key: "a")
    try await engine.close()
    withExtendedLifetime((original, null)) {}
  }

  @Test("It is completed for an entry copied from another place, whose sequence number was not assigned here")
  func entryOfAnotherPlace() async throws {
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(0, at: .now())
      let staged = StagedName(boundary: boundary, number: 0)
      // The file of an entry after `mv`, if the clock of the other place was an hour ahead.
      let header = EntryHeader(createdAt: .now(), sequence: boundary + 3_600_000_000_000)
      try connection.stage(
        data("1"), EntryMetadata(header: header, size: 1), as: staged, synchronized: false)
      try connection.moveIn(staged, to: FileName("x"))
    }
    let engine = try place.open()
    try await engine.write(data("1"), key: "y")
    #expect(try await Set(engine.allKeys()) == ["x", "y"])
    try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(0, at: .now())
      try connection.journal.begin(Transaction(boundary: boundary, steps: [.remove("x"), .remove("y")]))
    }
    connection.release()
    #expect(try await place.open().allKeys() == [])
  }

  #if os(Linux)
    @Test(
      "A journal that reappears undoes nothing, even if there is no space for it",
      .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
    func reappearedWithoutRoom() async throws {
      let system = try SmallDisk("nr_inodes=100")
      let engine = try system.open()
      let connection = try DiskConnection(
        directory: system.url.appending(path: "store").path, durability: .full)
      let transaction = try connection.withLock {
        let transaction = try stage(connection)
        try connection.journal.begin(transaction)
        try connection.complete(transaction, isReplay: false)
        return transaction
      }
      try await engine.remove(key: Self.long)
      try connection.withLock { try connection.journal.begin(transaction) }
      connection.release()
      try await engine.close()

      // Now there is no space for another directory.
      let others = system.url.appending(path: "others")
      try FileManager.default.createDirectory(at: others, withIntermediateDirectories: false)
      var count = 0
      while FileManager.default.createFile(atPath: "\(others.path)/\(count)", contents: nil) { count += 1 }
      #expect(throws: CocoaError.self) {
        try FileManager.default.createDirectory(
          at: others.appending(path: "one more"), withIntermediateDirectories: false)
      }
      do { try await system.open().close() } catch { #expect((error as? StorageError)?.code == .diskFull) }
      try FileManager.default.removeItem(at: others)
      #expect(try await state(system.open()) == ["new", nil, "new", nil, nil])
    }
  #endif

  @Test("Subscribers receive it once another engine has completed it", .timeLimit(.minutes(60)))
  func subscribersReceiveCompletion() async throws {
    let engine = try place.open()
    // The watched directory of entries does not change with a file in another directory.
    try await engine.write(data("old"), key: Self.long)
    var changes = try await engine.changes().makeAsyncIterator()
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(1, at: .now())
      try connection.stage(data("new"), at: boundary, number: 0, synchronized: true)
      try connection.journal.begin(
        Transaction(boundary: boundary, steps: [.replace(Self.long, staged: 0)]))
    }
    connection.release()
    try await place.open().close()
    #expect(await changes.next() == .everything)
    #expect(try await engine.read(key: Self.long) == data("new"))
    try await engine.close()
  }

  @Test("Files that a killed process left in the staging directory are removed, and disturb no engine")
  func leftovers() async throws {
    let engine = try place.open()
    try await engine.write(data("1"), key: "a")
    try data("left").write(to: place.file(".stockroom/staging/1-0"))
    let again = try place.open()
    try expectNothingLeft()
    #expect(try await again.allKeys() == ["a"])
  }

  @Test("Empty directories of long keys that a killed process left in undo are removed, and no others")
  func leftDirectories() async throws {
    let engine = try place.open()
    try await engine.write(data("1"), key: Self.long)
    try await engine.close()
    let directory = place.file(".stockroom/undo")
    func names() throws -> [String] {
      try FileManager.default.subpathsOfDirectory(atPath: directory.path).sorted()
    }
    func make(_ path: String) throws {
      try FileManager.default.createDirectory(
        at: directory.appending(path: path), withIntermediateDirectories: true)
    }
    let (outer, inner) = (String(repeating: "o", count: 240), String(repeating: "i", count: 238))
    try make("short.more")
    try make(outer)
    let before = try names()
    for path in ["\(outer).more/\(inner).more", "\(outer).more/\(outer).more", "\(inner).more"] {
      try make(path)
    }
    let again = try place.open()
    #expect(try names() == before)
    #expect(try await again.allKeys() == [Self.long])
    try await again.close()
  }
}
