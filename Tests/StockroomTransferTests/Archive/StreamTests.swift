import Foundation
import StockroomCore
import StockroomFileSystem
import StockroomMemory
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Archives through pipes") struct StreamTests {
  @Test("An archive is written to a pipe and restored from it")
  func pipes() async throws {
    let source = MemoryStorageEngine()
    try await fill(source)
    let engine = MemoryStorageEngine()
    let pipe = Pipe()
    async let restored = engine.restore(fromDescriptor: pipe.fileHandleForReading.fileDescriptor)
    let summary = try await source.dump(toDescriptor: pipe.fileHandleForWriting.fileDescriptor)
    try pipe.fileHandleForWriting.close()
    #expect(try await restored == summary)
    #expect(try await engine.readAllDataAndKeys().count == source.keyCount())
    let values = try await engine.readAllEntries().map(\.data)
    #expect(try await source.readAllEntries().map(\.data) == values)
  }

  @Test("A pipe that ends too early restores nothing")
  func brokenPipe() async throws {
    let place = try TemporaryDirectory()
    let source = MemoryStorageEngine()
    try await fill(source)
    try await source.dump(to: place.beside("archive"))
    let part = try Data(contentsOf: place.beside("archive")).dropLast(1)
    let pipe = Pipe()
    let writing = Task.detached {
      try pipe.fileHandleForWriting.write(contentsOf: part)
      try pipe.fileHandleForWriting.close()
    }
    let engine = MemoryStorageEngine()
    await expectError(.corrupted) {
      try await engine.restore(fromDescriptor: pipe.fileHandleForReading.fileDescriptor)
    }
    try await writing.value
    #expect(try await engine.keyCount() == 0)
  }

  @Test("A dump into a pipe that nobody reads ends when its task is cancelled", arguments: engineNames)
  func cancelledDump(name: String) async throws {
    let place = try TemporaryDirectory()
    let engine = try await open(name, place.url)
    try await engine.write(incompressible(1_000_000), key: key("1"))
    let pipe = Pipe()
    let dump = Task { try await engine.dump(toDescriptor: pipe.fileHandleForWriting.fileDescriptor) }
    _ = try await beginning(of: pipe)
    dump.cancel()
    await #expect(throws: CancellationError.self) { try await dump.value }
    try await engine.close()
  }

  @Test("A restore from a pipe that nobody writes to ends when its task is cancelled")
  func cancelledRestore() async throws {
    let pipe = Pipe()
    let engine = MemoryStorageEngine()
    let restore = Task { try await engine.restore(fromDescriptor: pipe.fileHandleForReading.fileDescriptor) }
    restore.cancel()
    await #expect(throws: CancellationError.self) { try await restore.value }
    try pipe.fileHandleForWriting.close()
  }

  @Test("Others write to files that are dumped while the dump waits for its reader, and are not in it")
  func slowReader() async throws {
    let place = try TemporaryDirectory()
    let engine = try await open("files", place.url)
    try await fill(engine)
    let before = try await engine.readAllEntries()
    let pipe = Pipe()
    let dump = Task {
      let summary = try await engine.dump(toDescriptor: pipe.fileHandleForWriting.fileDescriptor)
      try pipe.fileHandleForWriting.close()
      return summary
    }
    let first = try await beginning(of: pipe)
    // A lock held until the pipe is read would make this throw; a lock held briefly does not.
    let another = try DiskStorageEngine(
      directory: place.directory, durability: .process, lockTimeout: .seconds(10))
    try await another.write(Data("later".utf8), key: key("a compressible"))
    try await another.write(Data("later".utf8), key: key("later"))
    try await another.close()
    let rest = try await apart { try pipe.fileHandleForReading.readToEnd() }
    let archive = place.beside("archive")
    try (first + (rest ?? Data())).write(to: archive)
    let restored = MemoryStorageEngine()
    #expect(try await restored.restore(from: archive) == dump.value)
    #expect(try await restored.readAllEntries() == before)
    try await engine.close()
  }

  /// More than the header, so that entries have been read when it returns.
  private func beginning(of pipe: Pipe) async throws -> Data {
    var beginning = Data()
    while beginning.count < 100 {
      beginning += try #require(try await apart { try pipe.fileHandleForReading.read(upToCount: 100) })
    }
    return beginning
  }

  /// Runs blocking work on a thread outside the cooperative pool.
  private func apart<Result: Sendable>(
    _ work: @escaping @Sendable () throws -> Result
  ) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async { continuation.resume(with: Swift.Result { try work() }) }
    }
  }
}
