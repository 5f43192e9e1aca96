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
  /// - Throws: ``StorageError`` that names the path and the cause.
  package init(in parent: URL, named prefix: String) throws {
    url = parent.appending(path: "\(prefix)-\(UUID().uuidString.lowercased())", directoryHint: .isDirectory)
    try Self.make(url)
  }

  /// Makes a directory, with those that lead to it.
  package static func make(_ url: URL) throws {
    do {
      try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    } catch {
      throw StorageError(fileError: error, "Making the directory \(url.path(percentEncoded: false)) failed")
    }
  }

  /// Removes the directory with all that is in it. Does nothing if it is gone.
  package func remove() throws {
    do {
      try FileManager.default.removeItem(at: url)
    } catch let error as CocoaError where error.code == .fileNoSuchFile {
      return
    } catch {
      throw StorageError(fileError: error, "Removing the directory \(url.path(percentEncoded: false)) failed")
    }
  }
}

extension StorageError {
  /// The error for what `FileManager` threw, which carries the error number of the system call.
  fileprivate init(fileError error: any Error, _ message: String) {
    if let cause = (error as? CocoaError)?.underlying as? POSIXError {
      self = .posix(cause.code.rawValue, message)
    } else {
      self.init(.io, message, underlying: error)
    }
  }
}
