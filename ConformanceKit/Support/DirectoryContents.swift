#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Every file below a directory with its bytes, to detect changes. Of links it records the destination. Of pipes,
/// sockets and devices, which could block a read, it only records the existence.
struct DirectoryContents: Equatable {
  /// The contents by path, relative to the directory. Nil stands for a directory.
  var files: [String: Data?]

  /// - Parameter without: A directory to exclude, with all its contents.
  init(of directory: URL, without: URL? = nil) throws {
    files = [:]
    // Paths are compared as the file manager returns them, so both begin with the same spelling of the directory.
    let excluded = without.map { String($0.systemPath.dropFirst(directory.systemPath.count)) }
    for path in try FileManager.default.subpathsOfDirectory(atPath: directory.systemPath) {
      if let excluded, (path + "/").hasPrefix(excluded.hasSuffix("/") ? excluded : excluded + "/") {
        continue
      }
      let url = directory.appending(path: path)
      // Files may have been removed since they were listed.
      guard let type = System.fileType(of: url) else { continue }
      files[path] =
        switch type {
        case .typeDirectory: .some(nil)
        case .typeRegular: try Data(contentsOf: url)
        case .typeSymbolicLink:
          Data(try FileManager.default.destinationOfSymbolicLink(atPath: url.systemPath).utf8)
        default: Data(type.rawValue.utf8)
        }
    }
  }

  /// The paths that are new, missing or different in the other contents.
  func differences(from other: DirectoryContents) -> [String] {
    let all = Set(files.keys).union(other.files.keys)
    return all.filter { files[$0] != other.files[$0] }.sorted()
  }
}

/// Fails if anything in the directory differs from before.
func expectUnchanged(
  _ before: DirectoryContents, in directory: URL, without: URL? = nil, after what: String
) throws {
  let differences = try DirectoryContents(of: directory, without: without).differences(from: before)
  try expect(
    differences.isEmpty,
    "after \(what), these files had been created, changed or removed: \(differences.joined(separator: ", "))")
}
