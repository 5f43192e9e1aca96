import Foundation
import StockroomCSQLite
import StockroomCore
import StockroomSQLite
import Testing

/// The system's file calls, as SQLite makes them, of which reading fails while a test wants it to.
enum FaultyReads {
  private struct State {
    /// The paths of the open files, by the file's address.
    var paths: [UInt: String] = [:]
    var failing: Set<String> = []
    /// What takes the place of the system's methods, of which there are several kinds, by their address.
    var methods: [UInt: UInt] = [:]

    /// The methods of the system, but for reading. They are there as long as the process.
    mutating func faultyMethods(in own: UnsafePointer<sqlite3_io_methods>) -> Methods {
      if let known = methods[UInt(bitPattern: own)].flatMap(Methods.init(bitPattern:)) { return known }
      let copy = Methods.allocate(capacity: 1)
      copy.initialize(to: own.pointee)
      if systemRead == nil { systemRead = own.pointee.xRead }
      copy.pointee.xRead = read
      methods[UInt(bitPattern: own)] = UInt(bitPattern: copy)
      return copy
    }
  }

  private typealias Methods = UnsafeMutablePointer<sqlite3_io_methods>
  private typealias Read =
    @convention(c) (UnsafeMutablePointer<sqlite3_file>?, UnsafeMutableRawPointer?, Int32, Int64) -> Int32

  private static let state = MutexProtected(State())
  private nonisolated(unsafe) static let system = sqlite3_vfs_find(nil)
  /// The same for all kinds.
  private nonisolated(unsafe) static var systemRead: Read?

  /// All databases that are opened later use these.
  static let areInstalled: Bool = {
    guard let system else { return false }
    let faulty = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
    faulty.initialize(to: system.pointee)
    faulty.pointee.pNext = nil
    faulty.pointee.zName = UnsafePointer(strdup("faulty"))
    faulty.pointee.xOpen = { _, name, file, flags, outFlags in
      guard let system = FaultyReads.system, let open = system.pointee.xOpen else { return SQLITE_ERROR }
      let result = open(system, name, file, flags, outFlags)
      guard result == SQLITE_OK, let file, let own = file.pointee.pMethods, let name else { return result }
      return state.withLock { state in
        state.paths[UInt(bitPattern: file)] = String(cString: name)
        file.pointee.pMethods = UnsafePointer(state.faultyMethods(in: own))
        return SQLITE_OK
      }
    }
    return sqlite3_vfs_register(faulty, 1) == SQLITE_OK
  }()

  private static let read: Read = { file, buffer, count, offset in
    guard let file, let systemRead, !isFailing(UInt(bitPattern: file)) else { return SQLITE_IOERR | 1 << 8 }
    return systemRead(file, buffer, count, offset)
  }

  private static func isFailing(_ file: UInt) -> Bool {
    state.withLock { state in
      guard let path = state.paths[file] else { return false }
      return state.failing.contains { path.hasPrefix($0) }
    }
  }

  /// Does `body` while no file below the directory can be read.
  static func during<Result>(in directory: String, _ body: () throws -> Result) rethrows -> Result {
    _ = state.withLock { $0.failing.insert(directory) }
    defer { _ = state.withLock { $0.failing.remove(directory) } }
    return try body()
  }
}

@Suite struct FailedReadTests {
  struct FaultOfBody: Error {}

  /// More than SQLite keeps in memory.
  private func open(_ place: TestPlace) async throws -> SQLiteStorageEngine {
    try #require(FaultyReads.areInstalled)
    let engine = try SQLiteStorageEngine(directory: place.directory, cacheSize: 0)
    try await engine.write((0..<500).map { (CacheKey(verbatim: "cold-\($0)"), Data(count: 2_000)) })
    return engine
  }

  @Test("A transaction that cannot read takes no other with it that is committed at the same time")
  func group() async throws {
    let place = try TestPlace()
    let engine = try await open(place)
    let directory = try place.directory.resolvedPath
    let counter = CacheKey(verbatim: "counter")
    for round in 1...20 {
      // The first holds the thread that commits until the others wait for it.
      let (isRunning, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
      let first = Task {
        try await engine.withTransaction { _ in
          isRunning.signal()
          mayEnd.wait()
        }
      }
      await Task.detached { isRunning.waitForSignal() }.value
      let failing = Task {
        try await engine.withTransaction { transaction in
          try FaultyReads.during(in: directory) {
            for number in 0..<500 { _ = try transaction.read(key: CacheKey(verbatim: "cold-\(number)")) }
          }
        }
      }
      let counting = (0..<4).map { _ in
        Task {
          try await engine.withTransaction { transaction in
            let before = try transaction.read(key: counter) ?? Data("0".utf8)
            let count = try #require(Int(String(decoding: before, as: UTF8.self)))
            try transaction.write(Data("\(count + 1)".utf8), key: counter)
          }
        }
      }
      for _ in 0..<100 { await Task.yield() }
      mayEnd.signal()
      try await first.value
      let error = await #expect(throws: StorageError.self) { try await failing.value }
      #expect(error?.code == .io)
      for task in counting { try await task.value }
      #expect(try await engine.read(key: counter) == Data("\(round * 4)".utf8))
    }
  }

  @Test("The body that could not read decides what is thrown, and what it writes after that is not kept")
  func alone() async throws {
    let place = try TestPlace()
    let engine = try await open(place)
    let directory = try place.directory.resolvedPath
    @Sendable func readAll(_ transaction: any StorageTransaction) throws {
      try FaultyReads.during(in: directory) {
        for number in 0..<500 { _ = try transaction.read(key: CacheKey(verbatim: "cold-\(number)")) }
      }
    }
    await #expect(throws: FaultOfBody.self) {
      try await engine.withTransaction { transaction in
        do { try readAll(transaction) } catch { throw FaultOfBody() }
      }
    }
    // Nothing is read any more that would be of another moment.
    await #expect(throws: StorageError.self) {
      try await engine.withTransaction { transaction in
        try? readAll(transaction)
        return try transaction.read(key: CacheKey(verbatim: "cold-1"))
      }
    }
    let new = CacheKey(verbatim: "new")
    let error = await #expect(throws: StorageError.self) {
      try await engine.withTransaction { transaction in
        try? readAll(transaction)
        try transaction.write(Data("half".utf8), key: new)
      }
    }
    #expect(error?.code == .io)
    #expect(try await engine.read(key: new) == nil)
    try await engine.write(Data("whole".utf8), key: new)
    #expect(try await engine.read(key: new) == Data("whole".utf8))
  }

  @Test("So does that of an engine that only reads")
  func readOnly() async throws {
    let place = try TestPlace()
    try await open(place).close()
    let engine = try SQLiteStorageEngine(directory: place.directory, cacheSize: 0, access: .readOnly)
    let directory = try place.directory.resolvedPath
    await #expect(throws: FaultOfBody.self) {
      try await engine.withTransaction { transaction in
        do {
          try FaultyReads.during(in: directory) {
            for number in 0..<500 { _ = try transaction.read(key: CacheKey(verbatim: "cold-\(number)")) }
          }
        } catch { throw FaultOfBody() }
      }
    }
  }
}

extension DispatchSemaphore {
  fileprivate func waitForSignal() { wait() }
}
