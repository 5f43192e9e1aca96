#if os(Linux)
  package import Foundation

  /// The number of this process's descriptors for the file at the path.
  package func descriptorCount(ofFileAt url: URL) throws -> Int {
    let (folder, path) = ("/proc/self/fd", url.resolvingSymlinksInPath().path)
    return try FileManager.default.contentsOfDirectory(atPath: folder).count { number in
      // A descriptor closed meanwhile has no link.
      (try? FileManager.default.destinationOfSymbolicLink(atPath: "\(folder)/\(number)")) == path
    }
  }
#endif
