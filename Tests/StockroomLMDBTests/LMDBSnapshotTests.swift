#if os(Linux)
  import Foundation
  import Glibc
  import StockroomCore
  import TestFixtures
  import StockroomLMDB
  import Testing

  /// The reader table of an open database in the layout of LMDB 0.9: the number of the latest commit, and the
  /// commit of each reader.
  struct ReaderTable {
    private let file: Int32
    private let latestOffset = 8 + MemoryLayout<pthread_mutex_t>.size
    private let readersOffset = 2 * 64

    /// The file stays open, because closing it would release LMDB's locks of this process.
    init(_ place: TemporaryDirectory) throws {
      file = open(place.url.appending(path: "lock.mdb").path, O_RDWR)
      try #require(file >= 0)
    }

    func latest() throws -> Int { try number(at: latestOffset) }

    func setLatest(_ number: Int) throws {
      try #require(withUnsafeBytes(of: number) { pwrite(file, $0.baseAddress, 8, off_t(latestOffset)) } == 8)
    }

    /// Whether this process has one of the first eight slots in the table.
    func hasReader() throws -> Bool {
      try (0..<8).contains {
        try Int32(truncatingIfNeeded: number(at: readersOffset + 64 * $0 + 8)) == getpid()
      }
    }

    /// Adds a reader of the first commit, as another process would.
    func addReader(ofProcess process: Int32) throws {
      let slot = try readerCount()
      func write(_ number: Int, at offset: Int) throws {
        try #require(withUnsafeBytes(of: number) { pwrite(file, $0.baseAddress, 8, off_t(offset)) } == 8)
      }
      try write(1, at: readersOffset + 64 * slot)
      try write(Int(process), at: readersOffset + 64 * slot + 8)
      try write(7, at: readersOffset + 64 * slot + 16)
      var count = UInt32(slot + 1)
      try #require(pwrite(file, &count, 4, off_t(latestOffset + 8)) == 4)
    }

    /// The commits whose pages this process keeps from being reused.
    func commitsInUse() throws -> [Int] {
      try (0..<readerCount())
        .filter { try Int32(truncatingIfNeeded: number(at: readersOffset + 64 * $0 + 8)) == getpid() }
        .map { try number(at: readersOffset + 64 * $0) }
    }

    /// The number of slots that have been in use.
    private func readerCount() throws -> Int {
      var count = UInt32(0)
      try #require(pread(file, &count, 4, off_t(latestOffset + 8)) == 4)
      return Int(count)
    }

    private func number(at offset: Int) throws -> Int {
      var number = 0
      try #require(withUnsafeMutableBytes(of: &number) { pread(file, $0.baseAddress, 8, off_t(offset)) } == 8)
      return number
    }
  }

  @Suite("Snapshots of LMDB")
  struct LMDBSnapshotTests {
    @Test(
      "A reader that is delayed during two commits does not see the unacknowledged one")
    func superseded() async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine()
      for version in 1...3 { try await engine.write(value(version), key: key(1)) }
      let table = try ReaderTable(place)
      let third = try table.latest()

      // The state of the table when the reader began. Since then the third version has been written.
      try table.setLatest(third - 2)
      let isOver = MutexProtected(false)
      let read = Task {
        defer { isOver.withLock { $0 = true } }
        return try await engine.read(key: key(1))
      }
      while try !isOver.withLock({ $0 }) && !table.hasReader() { await Task.yield() }
      // The state of the table while the third version is being synced.
      try table.setLatest(third - 1)
      #expect(try await read.value == value(2))
      #expect(try await engine.read(key: key(1)) == value(2))
      try table.setLatest(third)
      #expect(try await engine.read(key: key(1)) == value(3))
      try await engine.close()
    }

    @Test(
      "A lock file with a number that the latest commit cannot have makes calls throw",
      arguments: [Int.max, .min])
    func impossibleNumber(number: Int) async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine()
      try await engine.write(value(1), key: key(1))
      let table = try ReaderTable(place)
      let latest = try table.latest()

      try table.setLatest(number)
      #expect(await code { _ = try await engine.read(key: key(1)) } == .io)
      #expect(await code { try await engine.write(value(2), key: key(1)) } == .io)

      try table.setLatest(latest)
      try await engine.write(value(3), key: key(1))
      #expect(try await engine.read(key: key(1)) == value(3))
      try await engine.close()
    }
  }
#endif
