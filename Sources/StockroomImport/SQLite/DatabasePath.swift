import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

enum DatabasePath {
  /// The path of the database at a URL, or of the only one in the directory there.
  ///
  /// - Throws: `StorageError` with code `unsupported` if the directory contains none, or more than one, or if it is not
  ///   a file: a symbolic link would lead out of the directory.
  static func find(at url: URL, isDatabase: (_ name: String) -> Bool) throws -> String {
    let path = url.path(percentEncoded: false)
    guard try isDirectory(path) else { return path }
    var names: [String] = []
    let directory = try FileDescriptor.openDirectory(atPath: path)
    try directory.forEachName { name, _ in
      let name = String(cString: name)
      if isDatabase(name) { names.append(name) }
    }
    guard let name = names.first, names.count == 1 else {
      throw StorageError(
        .unsupported,
        names.isEmpty
          ? "There is no database in the directory \(path)."
          : "There are several databases in the directory \(path): \(names.sorted().joined(separator: ", ")). Specify one."
      )
    }
    guard try directory.status(of: name)?.isRegularFile == true else {
      throw StorageError(
        .unsupported,
        "\(directory.path(of: name)) is not a file. If it is a link, specify the database itself.")
    }
    return path.hasSuffix("/") ? path + name : "\(path)/\(name)"
  }

  /// Whether the path leads to a directory, through symbolic links if there are any.
  ///
  /// - Throws: `StorageError` with code `io` if it does not exist.
  static func isDirectory(_ path: String) throws -> Bool {
    var isDirectory = false
    guard FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory) else {
      throw StorageError(.io, "There is nothing at \(path).")
    }
    return isDirectory
  }
}
