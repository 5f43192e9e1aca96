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

/// The directory of a database: whose it is, who has it open, and whether it is as it was left.
///
/// LevelDB takes every file with a name such as `5.log` or `LOG` for its own, and may rename or delete it. So the
/// database has a directory to itself, below the one that the engine is opened on, and nothing is left to LevelDB
/// before it is clear that the directory is the engine's.
final class LevelDBPlace: Sendable {
  static let directoryName = "Stockroom.leveldb"
  /// Says that the directory is ours.
  private static let identityName = "STOCKROOM"
  private static let identity = "Stockroom LevelDB database, layout 1"

  /// Where LevelDB's files are.
  let path: String
  /// Holds a lock on the directory.
  private let descriptor: Int32

  private var identityPath: String { path + "/" + Self.identityName }

  /// Takes the directory, which is made if need be.
  ///
  /// - Throws: `StorageError` with code `locked`, `unsupported`, `corrupted`, or as the system says.
  init(below directory: FileManager.Directory) throws {
    guard !LevelDBFiles.exists(directory.path + "/CURRENT") else {
      throw StorageError(
        .unsupported, "\(directory.path) is a LevelDB database of another program, and is left alone.")
    }
    let own = FileManager.Directory(
      url: directory.url.appending(path: Self.directoryName, directoryHint: .isDirectory))
    try own.create()
    path = own.path
    descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard descriptor >= 0 else {
      throw StorageError.posix(errno, "The directory \(path) could not be opened")
    }
    // If one of these throws, deinit closes the descriptor.
    try lock()
    try identify()
  }

  deinit {
    guard descriptor >= 0 else { return }
    // To close it would not do: a child between fork and exec has a copy, which would keep the lock.
    _ = flock(descriptor, LOCK_UN)
    close(descriptor)
  }

  /// The lock belongs to the descriptor, so that it keeps a second engine in this process out as well.
  private func lock() throws {
    guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
      let number = errno
      guard number == EWOULDBLOCK else {
        throw StorageError.posix(number, "The directory \(path) could not be locked")
      }
      throw StorageError(
        .locked, "The LevelDB database in \(path) is open elsewhere, in this process or in another one.",
        underlying: SystemError(number))
    }
  }

  private func identify() throws {
    let names = try LevelDBFiles.names(in: path)
    guard names.contains(Self.identityName) else {
      guard names.allSatisfy({ $0.hasPrefix(Self.identityName + ".") }) else {
        throw StorageError(
          .unsupported, "\(path) holds files that are not of this engine's making, and is left alone.")
      }
      try LevelDBFiles.replace(identityPath, with: Array(CheckedText.adding(to: Self.identity).utf8))
      return try LevelDBFiles.synchronize(path)
    }
    let found = String(decoding: try LevelDBFiles.read(identityPath, count: 256), as: UTF8.self)
    guard let identity = CheckedText.verifying(found) else {
      throw StorageError(.corrupted, "\(identityPath) is damaged.")
    }
    guard identity == Self.identity else {
      throw StorageError(
        .unsupported, "\(path) was made by another version of this engine: \(identity.debugDescription).")
    }
  }
}

/// What is in the directory of a database, by the names that LevelDB gives its files.
struct LevelDBFileList {
  var current: String?
  var manifests: [String] = []
  var logs: [String] = []
  var tables: [String] = []

  init(in directory: String) throws {
    for name in try LevelDBFiles.names(in: directory) {
      if name == "CURRENT" {
        current = name
      } else if name.hasPrefix("MANIFEST-") {
        manifests.append(name)
      } else if name.hasSuffix(".log") {
        logs.append(name)
      } else if name.hasSuffix(".ldb") || name.hasSuffix(".sst") {
        tables.append(name)
      }
    }
    logs.sort()
  }
}
