package import Foundation
package import StockroomCore

/// A directory for one test, and room beside it. Both are removed when the last reference goes.
package final class TemporaryDirectory: Sendable {
  /// Holds ``url``, and what a test puts beside it.
  package let parent: URL
  package let url: URL

  /// - Parameter isCreated: Whether ``url`` is there already. ``parent`` always is.
  package init(isCreated: Bool = true) throws {
    parent = FileManager.default.temporaryDirectory.appending(
      path: "stockroom-\(UUID().uuidString)", directoryHint: .isDirectory)
    url = parent.appending(path: "place", directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: isCreated ? url : parent, withIntermediateDirectories: true)
  }

  deinit {
    // An engine that a test drops without closing it may make one more file meanwhile.
    for _ in 0..<100 where FileManager.default.fileExists(atPath: parent.path) {
      try? FileManager.default.removeItem(at: parent)
    }
  }

  package var directory: FileManager.Directory { FileManager.Directory(url: url) }

  package func appending(_ path: String) -> URL { url.appending(path: path) }

  /// A path beside the directory.
  package func beside(_ name: String) -> URL { parent.appending(path: name) }
}
