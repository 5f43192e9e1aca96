#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A temporary directory with a unique name.
package struct ScratchDirectory: Sendable {
  package let url: URL

  /// Creates a directory below `parent`, which is created too if it is missing, and is not removed.
  ///
  /// - Throws: `StorageError` that names the path and the cause.
  package init(in parent: URL, named prefix: String) throws {
    url = parent.appending(path: "\(prefix)-\(UUID().uuidString.lowercased())", directoryHint: .isDirectory)
    try FileManager.Directory(url: url).create()
  }

  /// Removes the directory and its contents. Does nothing if it does not exist.
  package func remove() throws {
    do {
      try FileManager.default.removeItem(at: url)
    } catch let error as CocoaError
      where error.code == .fileNoSuchFile && !FileManager.default.fileExists(atPath: url.path)
    {
      // If the directory still exists, one of its files was removed concurrently, which is reported below.
      return
    } catch {
      let cause = (error as? CocoaError)?.underlying as? POSIXError
      let message = "Removing the directory \(FileManager.Directory(url: url).path) failed."
      throw cause.map { StorageError.posix($0.code.rawValue, message) }
        ?? StorageError(.io, message, underlying: error)
    }
  }
}
