import Foundation

extension URL {
  /// The URL of a path on the command line. The path is taken literally, except for the home directory: see
  /// ``Swift/String/withHomeDirectory``.
  ///
  /// `URL(filePath:)` alone would replace `~name` by the home directory of that user, or by `/var/empty` if there is no
  /// such user.
  init(commandLinePath path: String, directoryHint: DirectoryHint = .inferFromPath) {
    let path = path.withHomeDirectory
    self.init(
      filePath: path.utf8.first == UInt8(ascii: "~") ? "./" + path : path, directoryHint: directoryHint)
  }

  /// The components of the path after `.`, `..` and symbolic links have been resolved, so that all paths of a file have
  /// the same components. The file need not exist.
  var resolvedComponents: [String] {
    // Foundation resolves no link in a path if any part of the path is missing, so only the existing part is resolved.
    var (existing, missing) = (standardizedFileURL, [String]())
    while existing.pathComponents.count > 1, !FileManager.default.fileExists(atPath: existing.path) {
      missing.append(existing.lastPathComponent)
      existing.deleteLastPathComponent()
    }
    return existing.resolvingSymlinksInPath().pathComponents + missing.reversed()
  }
}

extension String {
  /// The path with the home directory in place of a leading `~/`, or of a `~` that is the whole path.
  var withHomeDirectory: String {
    self == "~" || hasPrefix("~/") ? NSHomeDirectory() + dropFirst() : self
  }
}
