import Foundation
import StockroomCore
import StockroomKitSupport

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// Files, links, pipes and locks.

extension System {
  static func closeFile(_ descriptor: Int32) { close(descriptor) }

  /// Copies a directory with the extended attributes of the files in it.
  ///
  /// - Throws: `StorageError` that names the copy.
  static func copy(_ directory: URL, to copy: URL) throws {
    #if canImport(Darwin)
      try FileManager.default.copyItem(at: directory, to: copy)
    #else
      // FileManager copies extended attributes only on Apple's systems.
      let copying = try ProgramOutput(waitingFor: ["/bin/cp", "-a", directory.systemPath, copy.systemPath])
      guard copying.isSuccess else {
        throw StorageError(.io, "Copying \(directory.path) failed: cp \(copying.explanation).")
      }
    #endif
  }

  /// The files inside a directory that this process has open.
  static func openFiles(in directory: URL) -> [String] {
    // The system reports real paths, which `resolvingSymlinksInPath` does not return everywhere.
    guard let resolved = realpath(directory.systemPath, nil) else { return [] }
    defer { free(resolved) }
    let path = String(cString: resolved)
    #if canImport(Darwin)
      let paths = (0..<getdtablesize()).compactMap { descriptor -> String? in
        var buffer = [CChar](repeating: 0, count: Int(MAXPATHLEN))
        guard fcntl(descriptor, F_GETPATH, &buffer) == 0 else { return nil }
        return String(decoding: buffer.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
      }
    #else
      let list = "/proc/self/fd"
      // A descriptor may be closed after it was listed, which is not an error.
      let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: list)) ?? []
      let paths = descriptors.compactMap {
        try? FileManager.default.destinationOfSymbolicLink(atPath: "\(list)/\($0)")
      }
    #endif
    return paths.filter { $0.hasPrefix(path) }.sorted()
  }

  /// Everything below a directory, of any kind.
  static func contents(of directory: URL) throws -> [URL] {
    try FileManager.default.subpathsOfDirectory(atPath: directory.systemPath).map {
      directory.appending(path: $0)
    }
  }

  /// A directory and all directories below it.
  static func directories(in directory: URL) throws -> [URL] {
    try [directory] + contents(of: directory).filter { mode(of: $0)?.isDirectory == true }
  }

  /// The type of the file at the path itself, without following links; nil if there is none, or access is denied.
  static func fileType(of url: URL) -> FileAttributeType? {
    // A missing file is a valid result.
    (try? FileManager.default.attributesOfItem(atPath: url.systemPath))?[.type] as? FileAttributeType
  }

  /// Whether the path, or the target of its link, is a regular file.
  static func leadsToFile(_ url: URL) -> Bool { fileType(of: url.resolvingSymlinksInPath()) == .typeRegular }

  /// The sizes of the files below a directory, by path. Other processes may create and remove files meanwhile.
  static func sizesOfFiles(in directory: URL) -> [String: Int] {
    let paths = (try? FileManager.default.subpathsOfDirectory(atPath: directory.systemPath)) ?? []
    return paths.reduce(into: [:]) { sizes, path in
      let file = directory.appending(path: path).systemPath
      guard let attributes = try? FileManager.default.attributesOfItem(atPath: file) else { return }
      guard attributes[.type] as? FileAttributeType == .typeRegular else { return }
      sizes[path] = attributes[.size] as? Int
    }
  }

  static func makeLink(at url: URL, to target: URL) throws {
    guard symlink(target.systemPath, url.systemPath) == 0 else {
      throw StorageError.posix(errno, "Creating the link \(url.systemPath) failed")
    }
  }

  /// Creates a directory. Returns whether the file system allows the name and it did not exist.
  static func makeDirectory(_ path: String) -> Bool { mkdir(path, 0o700) == 0 }

  static func makeFIFO(_ url: URL) throws {
    guard mkfifo(url.systemPath, 0o600) == 0 else {
      throw StorageError.posix(errno, "Creating the FIFO \(url.systemPath) failed")
    }
  }

  /// Unblocks threads and processes that wait for the other end of a FIFO to be opened.
  static func release(_ url: URL) {
    let file = open(url.systemPath, O_RDWR | O_NONBLOCK | O_CLOEXEC)
    if file >= 0 { close(file) }
  }

  /// Blocks the calling thread until another process has opened a FIFO for writing.
  static func waitForWriter(of url: URL) throws {
    var file = open(url.systemPath, O_RDONLY | O_CLOEXEC)
    while file < 0, errno == EINTR { file = open(url.systemPath, O_RDONLY | O_CLOEXEC) }
    guard file >= 0 else { throw StorageError.posix(errno, "Opening the FIFO \(url.systemPath) failed") }
    close(file)
  }

  /// Keeps a FIFO open for writing while the body runs.
  static func withWriter<Result>(of url: URL, _ body: () async throws -> Result) async throws -> Result {
    let file = open(url.systemPath, O_RDWR | O_NONBLOCK | O_CLOEXEC)
    guard file >= 0 else { throw StorageError.posix(errno, "Opening the FIFO \(url.systemPath) failed") }
    defer { close(file) }
    return try await body()
  }

  /// Whether this process has mapped the file for writing.
  static func isMappedForWriting(_ url: URL) -> Bool {
    guard let resolved = realpath(url.systemPath, nil) else { return false }
    defer { free(resolved) }
    let path = String(cString: resolved)
    let maps = (try? String(contentsOfFile: "/proc/self/maps", encoding: .utf8)) ?? ""
    return maps.split(whereSeparator: \.isNewline).contains { $0.hasSuffix(path) && $0.contains(" rw-s ") }
  }

  /// Takes every lock that a descriptor for reading allows, unless another process has it. Returns the descriptor,
  /// which holds the locks; nil if this is not a file.
  static func lockForReading(_ url: URL) -> Int32? {
    guard mode(of: url)?.isDirectory == false else { return nil }
    let file = open(url.systemPath, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    _ = flock(file, LOCK_EX | LOCK_NB)
    var region = flock()
    region.l_type = Int16(F_RDLCK)
    region.l_whence = Int16(SEEK_SET)
    _ = fcntl(file, F_SETLK, &region)
    return file
  }
}
