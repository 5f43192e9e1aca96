import Foundation
import StockroomEngines
import Stockroom
import Testing

/// A directory for one test, and the engine to open on it.
final class Place: Sendable {
  let url = FileManager.default.temporaryDirectory.appending(
    path: "stockroom-\(UUID().uuidString)", directoryHint: .isDirectory)
  let kind: EngineCatalog.Entry

  init(_ name: String) throws { kind = try EngineCatalog.select([name])[0] }

  deinit { try? FileManager.default.removeItem(at: url) }

  func engine(_ name: String = "") async throws -> any StorageEngine {
    try await kind.open(url.appending(path: "place \(name)"), .process)
  }

  /// The names of all built-in engines, as arguments of tests.
  static let names = EngineCatalog.onThisMachine.map(\.name)
}

/// Calls `body` with data directories of this process that are removed afterwards. Call it in a separate process,
/// because it sets the environment.
func withOwnDataDirectory(_ body: () async throws -> Void) async throws {
  let directory = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)")
  setenv("XDG_DATA_HOME", directory.path(percentEncoded: false), 1)
  setenv("XDG_CACHE_HOME", directory.appending(path: "caches").path(percentEncoded: false), 1)
  setenv("XDG_DOCUMENTS_DIR", directory.appending(path: "documents").path(percentEncoded: false), 1)
  defer { try? FileManager.default.removeItem(at: directory) }
  try await body()
}
