package import Foundation
package import StockroomCore

/// A temporary directory for one test, with space for siblings. Both are removed with the last reference.
package final class TemporaryDirectory: Sendable {
  /// Contains ``url`` and its siblings.
  package let parent: URL
  package let url: URL

  /// - Parameter isCreated: Whether to create ``url``. ``parent`` is always created.
  package init(isCreated: Bool = true) throws {
    parent = FileManager.default.temporaryDirectory.appending(
      path: "stockroom-\(UUID().uuidString)", directoryHint: .isDirectory)
    url = parent.appending(path: "place", directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: isCreated ? url : parent, withIntermediateDirectories: true)
  }

  deinit {
    // An engine that a test dropped without closing it may still create a file.
    for _ in 0..<100 where FileManager.default.fileExists(atPath: parent.path) {
      try? FileManager.default.removeItem(at: parent)
    }
  }

  package var directory: FileManager.Directory { FileManager.Directory(url: url) }

  package func appending(_ path: String) -> URL { url.appending(path: path) }

  /// The URL of a sibling of the directory.
  package func beside(_ name: String) -> URL { parent.appending(path: name) }
}
