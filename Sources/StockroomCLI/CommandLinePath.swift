import Foundation

extension URL {
  /// What a path of the command line leads to: as it is written, but for the home directory (see ``Swift/String/withHomeDirectory``).
  ///
  /// `URL(filePath:)` alone would take `~name` for the home directory of a user, and of a user that does not exist for
  /// `/var/empty`.
  init(commandLinePath path: String, directoryHint: DirectoryHint = .inferFromPath) {
    let path = path.withHomeDirectory
    self.init(
      filePath: path.utf8.first == UInt8(ascii: "~") ? "./" + path : path, directoryHint: directoryHint)
  }

  /// The components of the path, which are the same however it is spelled and through whatever links it leads, whether or not there is
  /// something already.
  var resolvedComponents: [String] {
    // Foundation resolves no link in a path of which any part is missing.
    var (existing, missing) = (standardizedFileURL, [String]())
    while existing.pathComponents.count > 1, !FileManager.default.fileExists(atPath: existing.path) {
      missing.append(existing.lastPathComponent)
      existing.deleteLastPathComponent()
    }
    return existing.resolvingSymlinksInPath().pathComponents + missing.reversed()
  }
}

extension String {
  /// The path with the home directory in place of a `~` that is alone or in front of a slash.
  var withHomeDirectory: String {
    self == "~" || hasPrefix("~/") ? NSHomeDirectory() + dropFirst() : self
  }
}
