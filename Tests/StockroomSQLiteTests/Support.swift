import StockroomCSQLite
import Foundation
import StockroomCore
import TestFixtures
import StockroomSQLite
import Synchronization
import Testing

/// The location of a test's database. Its directory is not created yet.
struct TestPlace: Sendable {
  private let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory(isCreated: false) }

  var parent: URL { place.parent }
  var url: URL { place.url }
  var directory: FileManager.Directory { place.directory }
  /// The paths of the database's files.
  var database: String { url.appending(path: "data.sqlite3").path(percentEncoded: false) }
  var log: String { database + "-wal" }
  var sharedMemory: String { database + "-shm" }

  /// Creates an empty file beside the directory.
  func makeFile(_ name: String) throws -> URL {
    let file = parent.appending(path: name)
    try Data().write(to: file)
    return file
  }

  /// The contents of the files in the directory, by name.
  func contents() throws -> [String: Data] {
    let names = try FileManager.default.contentsOfDirectory(atPath: url.path(percentEncoded: false))
    return try Dictionary(
      uniqueKeysWithValues: names.map { ($0, try Data(contentsOf: url.appending(path: $0))) })
  }
}

/// A connection to a database, as another program would open it.
final class RawConnection {
  private let handle: OpaquePointer?

  init(_ path: String) throws {
    var handle: OpaquePointer?
    let result = sqlite3_open(path, &handle)
    self.handle = handle
    try #require(result == SQLITE_OK)
  }

  deinit { sqlite3_close_v2(handle) }

  func run(_ sql: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let result = sqlite3_exec(handle, sql, nil, nil, nil)
    try #require(
      result == SQLITE_OK, "\(String(cString: sqlite3_errmsg(handle)))", sourceLocation: sourceLocation)
  }
}

/// A counter that tasks share.
final class Counter: Sendable {
  private let value = Atomic(0)
  var count: Int { value.load(ordering: .relaxed) }
  func increment() { value.add(1, ordering: .relaxed) }
}

func key(_ number: Int) -> CacheKey { CacheKey(verbatim: "key \(number)") }
func data(_ text: String) -> Data { Data(text.utf8) }

/// The size of a file in bytes, or nil if it does not exist.
func size(of path: String) throws -> Int? {
  guard FileManager.default.fileExists(atPath: path) else { return nil }
  return try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int
}

/// Expects a storage error with this code whose description contains a text.
func expectError<Result>(
  _ code: StorageError.Code, naming text: String, _ comment: Comment? = nil,
  sourceLocation: SourceLocation = #_sourceLocation, _ body: () async throws -> Result
) async {
  do {
    let result = try await body()
    Issue.record("\(result) came instead of an error. \(comment ?? "")", sourceLocation: sourceLocation)
  } catch let error as StorageError {
    #expect(error.code == code, "\(error). \(comment ?? "")", sourceLocation: sourceLocation)
    #expect(error.description.contains(text), "\(comment ?? "")", sourceLocation: sourceLocation)
  } catch {
    Issue.record(error, comment, sourceLocation: sourceLocation)
  }
}
