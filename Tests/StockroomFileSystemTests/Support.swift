import Foundation
import StockroomCore
import StockroomFileSystem

/// A directory of the test's own, removed when the last reference to it goes.
final class TestDirectory: Sendable {
  let url: URL

  init(in parent: URL = FileManager.default.temporaryDirectory) throws {
    url = parent.appending(path: "stockroom-files-\(UUID().uuidString)", directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(at: url) }

  var directory: FileManager.Directory { FileManager.Directory(url: url) }

  func open(_ durability: Durability = .full) throws -> DiskStorageEngine {
    try DiskStorageEngine(directory: directory, durability: durability)
  }

  /// The path of everything below the directory, but for what is hidden, sorted.
  func visibleFiles() throws -> [String] {
    try FileManager.default.subpathsOfDirectory(atPath: url.path).filter { !$0.hasPrefix(".stockroom") }
      .sorted()
  }

  func file(_ name: String) -> URL { url.appending(path: name) }

  func contents(_ name: String) throws -> Data { try Data(contentsOf: file(name)) }
}

extension CacheKey: ExpressibleByStringLiteral {
  /// The key itself, in tests.
  public init(stringLiteral text: String) { self.init(verbatim: text) }
}

func data(_ text: String) -> Data { Data(text.utf8) }
