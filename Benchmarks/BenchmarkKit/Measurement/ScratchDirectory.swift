#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A directory that exists for a while and shares its name with nothing else.
package struct ScratchDirectory: Sendable {
  package let url: URL

  /// Makes a directory below `parent`, which is made too if it is missing and then stays.
  ///
  /// - Throws: `StorageError` that names the path and the cause.
  package init(in parent: URL, named prefix: String) throws {
    url = parent.appending(path: "\(prefix)-\(UUID().uuidString.lowercased())", directoryHint: .isDirectory)
    try FileManager.Directory(url: url).create()
  }

  /// Removes the directory with all that is in it. Does nothing if it is gone.
  package func remove() throws {
    do {
      try FileManager.default.removeItem(at: url)
    } catch let error as CocoaError where error.code == .fileNoSuchFile {
      return
    } catch {
      let cause = (error as? CocoaError)?.underlying as? POSIXError
      let message = "Removing the directory \(FileManager.Directory(url: url).path) failed."
      throw cause.map { StorageError.posix($0.code.rawValue, message) }
        ?? StorageError(.io, message, underlying: error)
    }
  }
}
