import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomFileSystem

@Suite("A batch whose end cannot be written to the journal")
struct UndecidedBatchTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  /// Calls the body while a batch that removes two entries is in the journal. After that the engine must not
  /// write.
  private func withBegunRemoval(_ body: (DiskConnection, Transaction) throws -> Void) async throws {
    let engine = try place.open()
    for key in ["x", "y"] as [CacheKey] { try await engine.write(data("old"), key: key) }
    try await engine.close()
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    try connection.withLock {
      let boundary = try connection.reserveSequenceNumbers(0, at: .now())
      let transaction = Transaction(boundary: boundary, steps: [.remove("x"), .remove("y")])
      try connection.journal.begin(transaction)
      try body(connection, transaction)
    }
    let later = #expect(throws: StorageError.self) { try connection.withLock {} }
    #expect(later?.code == .io)
    connection.release()
  }

  @Test("It is not acknowledged, the engine stops writing, and the next engine completes it")
  func notAcknowledged() async throws {
    try await withBegunRemoval { connection, transaction in
      try FileManager.default.removeItem(at: place.file(".stockroom/undo"))
      // From here on the journal can be read, but not written.
      let readOnly = try #require(
        try FileDescriptor.openFile(atPath: place.file(".stockroom/journal").path, O_RDONLY))
      let isReplaced = withExtendedLifetime(readOnly) {
        dup2(readOnly.number, connection.journal.file.number) >= 0
      }
      try #require(isReplaced)
      let error = #expect(throws: AfterCommitError.self) {
        try connection.complete(transaction, isReplay: false)
      }
      #expect((error?.underlying as? StorageError)?.code == .io)
    }
    #expect(try await place.open().keyCount() == 0)
  }

  @Test(
    "If the sync of its undo fails, the engine stops writing, and the next engine undoes it")
  func unsyncedUndoing() async throws {
    try await withBegunRemoval { connection, transaction in
      #expect(throws: StorageError.self) {
        try connection.complete(
          transaction, isReplay: false, synchronize: { _ in throw StorageError(.io, "In the test.") })
      }
    }
    #expect(try await place.open().keyCount() == 2)
  }

  @Test("A batch syncs its names once, while it is in the journal", arguments: Durability.allCases)
  func syncBeforeEnd(_ durability: Durability) async throws {
    let engine = try place.open(durability)
    for key in ["x", "y"] as [CacheKey] { try await engine.write(data("old"), key: key) }
    try await engine.close()
    let connection = try DiskConnection(directory: place.url.path, durability: durability)
    defer { connection.release() }
    var (synced, isInJournal): ([[FileName]], Bool) = ([], false)
    try connection.withLock {
      let transaction = Transaction(
        boundary: try connection.reserveSequenceNumbers(0, at: .now()), steps: [.remove("x"), .remove("y")])
      try connection.journal.begin(transaction)
      try connection.complete(
        transaction, isReplay: false,
        synchronize: { names in
          synced.append(names)
          isInJournal = try connection.journal.read() != nil
        })
      let isInJournalAfterwards = try connection.journal.read() != nil
      #expect(!isInJournalAfterwards)
    }
    #expect(synced == [[FileName("x"), FileName("y")]])
    #expect(isInJournal)
  }

  #if os(Linux)
    @Test("A batch of an engine syncs the same directories at every durability")
    func syncByEngine() async throws {
      let keys = ["a", "b"].map { CacheKey(verbatim: String(repeating: "k", count: 300) + $0) }
      let engines = try Durability.allCases.map { try place.open($0) }
      for engine in engines { try await engine.write(keys.map { ($0, data("old")) }) }
      let directory = try #require(try place.visibleFiles().first { $0.hasSuffix(".more") })
      let openings = try DirectoryOpenings(of: place.file(directory))
      var counts: [Int] = []
      for engine in engines {
        _ = openings.takeCount()
        try await engine.write(keys.map { ($0, data("new")) })
        counts.append(openings.takeCount())
      }
      #expect(Set(counts).count == 1, "\(counts)")
    }

    @Test("If neither its beginning nor its end is synced, every engine writes the end before its next write")
    func unsyncedEnd() throws {
      func commit(_ operations: [StorageOperation], to connection: DiskConnection) throws {
        try connection.commit([DiskRequest(.operations(operations))])
      }
      let (writer, other) = (
        try DiskConnection(directory: place.url.path, durability: .full),
        try DiskConnection(directory: place.url.path, durability: .full)
      )
      try commit([.write(data("old"), key: "x")], to: other)
      // A descriptor that can be written, but not synced.
      let unsyncable = try #require(try FileDescriptor.openFile(atPath: "/dev/zero"))
      try Self.withJournal(of: writer, replacedBy: unsyncable) {
        #expect(throws: StorageError.self) {
          try commit([.write(data("batch"), key: "x"), .write(data("batch"), key: "y")], to: writer)
        }
      }
      let readOnly = try #require(
        try FileDescriptor.openFile(atPath: place.file(".stockroom/journal").path, O_RDONLY))
      try Self.withJournal(of: other, replacedBy: readOnly) {
        #expect(throws: StorageError.self) { try commit([.write(data("new"), key: "x")], to: other) }
      }
      for (connection, value) in [(other, "new"), (writer, "newest")] {
        try commit([.write(data(value), key: "x")], to: connection)
        #expect(try place.contents("x.entry") == data(value))
        connection.release()
      }
    }

    @Test("If its end may not be on the disk, its files are removed only once it is")
    func filesOfUnsyncedEnd() throws {
      let writer = try DiskConnection(directory: place.url.path, durability: .full)
      let name = StagedName(boundary: 1, number: 0)
      let other = try writer.withLock {
        let metadata = EntryMetadata(header: EntryHeader(createdAt: .now(), sequence: 2), size: 3)
        try writer.stage(data("new"), metadata, as: name, synchronized: true)
        // While another engine holds the lock, opening removes nothing.
        return try DiskConnection(directory: place.url.path, durability: .process)
      }
      writer.release()
      let unsyncable = try #require(try FileDescriptor.openFile(atPath: "/dev/null"))
      try Self.withJournal(of: other, replacedBy: unsyncable) {
        #expect(throws: StorageError.self) { try other.withLock {} }
      }
      #expect(try other.staging.contains(name))
      try other.withLock {}
      #expect(try !other.staging.contains(name))
      other.release()
    }

    private static func withJournal(
      of connection: DiskConnection, replacedBy file: FileDescriptor, _ body: () throws -> Void
    ) throws {
      let number = connection.journal.file.number
      let original = dup(number)
      try #require(original >= 0)
      defer { close(original) }
      try #require(dup2(file.number, number) >= 0)
      try body()
      try #require(dup2(original, number) >= 0)
    }
  #endif
}
