import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The directory of a `DiskStorageEngine` of Bodega, or of the `DiskStorage` of its first version: a file for each entry.
///
/// ```swift
/// let source = BodegaDiskSource(at: FileManager.Directory.documents(appendingPath: "Notes").url)
/// try await source.import(into: engine)
/// ```
///
/// The name of a file is the key: the hash of the text that `CacheKey("text")` was created from, or a text given
/// verbatim. ``ImportKeys`` describes how the identifiers of a store are recovered. The times are those of the files.
/// If there is no creation time, or a copy has set it to a later time, the time of the last change is used for both.
/// Directories are skipped, as in Bodega, and so are files that the system creates.
public struct BodegaDiskSource: ImportSource {
  private let url: URL

  /// - Parameter url: The directory.
  public init(at url: URL) { self.url = url }

  /// "the Bodega directory" and its path.
  public var description: String { "the Bodega directory \(url.path(percentEncoded: false))" }

  /// Checks every file. O(N log N); reads no values.
  ///
  /// - Throws: as ``ImportSource/open()``; `unsupported` if the directory has no files, or contains something that is
  ///   neither a file nor a directory, such as a symbolic link, or a name that is not UTF-8; `valueTooLarge` if a file
  ///   has more than 1,000,000,000 bytes.
  @concurrent
  public func open() async throws -> any ImportContent {
    try await DedicatedThread.runOnNewThread { flag in
      try DirectoryContent(path: url.path(percentEncoded: false), flag)
    }
  }

  /// Whether files with this name are created by the Finder, or left incomplete by Foundation, and not written by an
  /// engine.
  static func isMadeBySystem(_ name: String) -> Bool {
    name == ".DS_Store" || name == ".localized" || name.hasPrefix("._") || name.hasPrefix(".dat.nosync")
  }
}

/// The files in a directory.
private struct DirectoryContent: ImportContent {
  /// The maximum size of a value, which is also the default limit of SQLite.
  private static let maximumSize = 1_000_000_000

  private struct File {
    let key: CacheKey
    let status: FileStatus
    let createdAt: Date
    let updatedAt: Date
  }

  private let directory: FileDescriptor
  private let files: [File]
  let omissions: [String]
  var count: Int { files.count }
  let hasHashedKeys = true

  init(path: String, _ flag: CancellationFlag) throws {
    guard try DatabasePath.isDirectory(path) else {
      throw StorageError(.unsupported, "\(path) is a file, and not a directory with a file for each entry.")
    }
    let directory = try FileDescriptor.openDirectory(atPath: path)
    var files: [File] = []
    var omissions: [String] = []
    try directory.forEachName { name, _ in
      try flag.check()
      // Nil if it has just been removed.
      guard let status = try directory.status(of: name) else { return }
      let bytes = UnsafeRawBufferPointer(start: name, count: strlen(name))
      guard let key = CacheKey(utf8: bytes) else {
        throw StorageError(.unsupported, "\(directory.path(of: name)) has a name that is not UTF-8.")
      }
      if status.isDirectory {
        return omissions.append("\(directory.path(of: name)) is a directory.")
      }
      if BodegaDiskSource.isMadeBySystem(key.value) {
        return omissions.append("\(directory.path(of: name)) was made by the system.")
      }
      guard status.isRegularFile else {
        throw StorageError(
          .unsupported,
          "\(directory.path(of: name)) is \(status.isSymbolicLink ? "a symbolic link" : "a special file"), not a file with a value. Move it away."
        )
      }
      guard status.size <= Self.maximumSize else {
        throw StorageError(.valueTooLarge, "\(directory.path(of: name)) has \(status.size) bytes.")
      }
      let created = try directory.creationTime(of: name) ?? status.modified
      files.append(
        File(
          key: key, status: status, createdAt: SourceDate.date(min(created, status.modified)),
          updatedAt: SourceDate.date(status.modified)))
    }
    guard !files.isEmpty else {
      throw StorageError(.unsupported, "There are no files in the directory \(path), so nothing to import.")
    }
    self.directory = directory
    self.omissions = omissions.sorted()
    self.files = files.sorted {
      ($0.createdAt, $0.updatedAt, $0.key) < ($1.createdAt, $1.updatedAt, $1.key)
    }
  }

  func key(at index: Int) -> CacheKey { files[index].key }

  func entry(at index: Int) throws -> StorageEntry {
    let file = files[index]
    let path = "\(directory.path)/\(file.key.value)"
    guard let descriptor = try directory.openFile(file.key.value, O_RDONLY),
      case let status = try descriptor.status(),
      status.identity == file.status.identity, status.size == file.status.size,
      status.modified == file.status.modified,
      case let data = try descriptor.readData(size: status.size), data.count == status.size
    else {
      throw StorageError(.locked, "Another program has changed \(path) while it was being imported.")
    }
    return StorageEntry(key: file.key, data: data, createdAt: file.createdAt, updatedAt: file.updatedAt)
  }
}

extension FileDescriptor {
  /// The time at which a file in this directory was created; nil if the system does not provide it.
  fileprivate func creationTime(of name: UnsafePointer<CChar>) throws -> Timestamp? {
    #if canImport(Darwin)
      var raw = stat()
      guard fstatat(number, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 else {
        throw StorageError.posix(errno, "Reading the status of \(path(of: name)) failed.")
      }
      return Timestamp(clamping: raw.st_birthtimespec)
    #else
      // The directory of an app was copied to this system, so the creation time is that of the copy.
      return nil
    #endif
  }
}
