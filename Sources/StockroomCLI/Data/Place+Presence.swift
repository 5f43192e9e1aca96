import Foundation
import StockroomCore

/// A command failed on a place.
struct PlaceFailure: Error, CustomStringConvertible {
  let place: Place
  let cause: any Error

  var description: String { "\(place): \(cause)" }

  /// Calls `body`. A `StorageError` or ``PlaceAbsent`` that it throws is wrapped in a ``PlaceFailure``, which names the
  /// place.
  static func naming<Result>(_ place: Place, _ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch {
      throw named(place, error)
    }
  }

  /// Like the synchronous method, with an asynchronous `body`.
  static func naming<Result>(_ place: Place, _ body: () async throws -> Result) async throws -> Result {
    do {
      return try await body()
    } catch {
      throw named(place, error)
    }
  }

  private static func named(_ place: Place, _ error: any Error) -> any Error {
    error is StorageError || error is PlaceAbsent ? PlaceFailure(place: place, cause: error) : error
  }
}

/// There is no place of the engine at the path.
struct PlaceAbsent: Error, CustomStringConvertible {
  let engine: Place.LocalEngine
  let path: String
  /// The engines that have a place at the path.
  let others: [Place.LocalEngine]

  var description: String {
    let found = others.map { ", but there is \($0.placeTitleWithArticle): \($0.rawValue):\(path.escaped)" }
    return "There is no \(engine.placeTitle) at \(path.escaped)\(found.joined())."
  }
}

extension Place.LocalEngine {
  /// Whether there is a place of this engine at the path.
  ///
  /// - Throws: `StorageError` if the system does not allow it to be checked.
  func findsPlace(atPath path: String) throws -> Bool {
    try markers(atPath: path).contains { try FileStatus(following: $0) != nil }
  }

  /// Like ``findsPlace(atPath:)``, but false if it cannot be checked. For suggestions.
  func hasPlace(atPath path: String) -> Bool { (try? findsPlace(atPath: path)) ?? false }

  /// Paths of files. Every place of this engine has at least one of these files.
  private func markers(atPath path: String) -> [String] {
    switch self {
    case .sqlite: [SQLiteLocation(path: path)?.file].compactMap(\.self)
    case .lmdb: [path + "/data.mdb"]
    case .leveldb: ["STOCKROOM", "CURRENT"].map { "\(path)/Stockroom.leveldb/\($0)" }
    case .files: [path + "/.stockroom/state"]
    }
  }
}

extension Place {
  /// Throws unless the place exists, so that opening it does not create it. A place in PostgreSQL is not checked here:
  /// opening it as read-only does that.
  ///
  /// - Throws: ``PlaceAbsent`` with the engines that have a place at the path; `StorageError` with code `unsupported`
  ///   if the path leads to a file without the suffix of SQLite databases, or with another code if the system does not
  ///   allow it to be checked.
  func requirePresence() throws {
    guard case .local(let engine, let path) = self else { return }
    if engine == .sqlite, SQLiteLocation(path: path) == nil {
      throw StorageError(
        .unsupported, "\(path.escaped) is a file whose name does not end with \(SQLiteLocation.suffix).")
    }
    if try engine.findsPlace(atPath: path) { return }
    let others = LocalEngine.allCases.filter { $0.hasPlace(atPath: path) }
    throw PlaceAbsent(engine: engine, path: path, others: others)
  }
}

/// The directory of an SQLite database, and its name there.
struct SQLiteLocation: Sendable, Equatable {
  static let suffix = ".sqlite3"

  let directory: String
  /// Without the suffix.
  let filename: String

  var file: String { "\(directory)/\(filename)\(Self.suffix)" }

  /// The location for a path. A path that ends with the suffix and is not a directory is the database itself; any other
  /// is the directory of the database `data`. Nil if the path leads to a file without the suffix.
  init?(path: String) {
    var isDirectory: ObjCBool = false
    let exists = FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory)
    let name = path.split(separator: "/").last.map(String.init) ?? ""
    if exists && isDirectory.boolValue || !path.hasSuffix(Self.suffix) || name == Self.suffix {
      if exists && !isDirectory.boolValue { return nil }
      (directory, filename) = (path, "data")
    } else {
      let parent = path.dropLast(name.count)
      directory = parent.isEmpty ? "." : String(parent)
      filename = String(name.dropLast(Self.suffix.count))
    }
  }
}

extension FileStatus {
  /// The status of the file at the path, with symbolic links followed; nil if there is none.
  init?(following path: String) throws {
    var raw = stat()
    guard stat(path, &raw) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw StorageError.posix(errno, "Reading the status of \(path.escaped) failed.")
    }
    self.init(raw)
  }
}
