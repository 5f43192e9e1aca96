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
import StockroomCore

/// The name of a staged file: whose batch it belongs to, its number there, and which half of the entry it is.
struct StagedName: Sendable {
  let boundary: UInt64
  let number: Int
  var isMetadata = false

  func withName<Result>(_ body: (UnsafePointer<CChar>) throws -> Result) rethrows -> Result {
    try (String(boundary, radix: 16) + "-" + String(number) + (isMetadata ? "-created" : "")).withCString(
      body)
  }

  var metadata: StagedName { StagedName(boundary: boundary, number: number, isMetadata: true) }
}

/// The directory in which files are written before they are moved to where readers find them. Only the holder of
/// the lock has files in it, so whatever the next one finds is left over.
struct Staging: Sendable {
  static let name = "staging"

  let directory: FileDescriptor

  /// Writes a file. Nothing is left of it if that fails.
  func write(
    _ name: StagedName, synchronized: Bool, _ fill: (FileDescriptor) throws -> Void
  ) throws {
    let file = try name.withName(make)
    do {
      try fill(file)
      if synchronized { try file.synchronize() }
    } catch {
      remove(name)
      throw error
    }
  }

  private func make(_ name: UnsafePointer<CChar>) throws -> FileDescriptor {
    let flags = O_WRONLY | O_CREAT | O_EXCL | FileDescriptor.commonFlags
    var number = retrying { openat(directory.number, name, flags, 0o666) }
    if number < 0, errno == EEXIST {
      // Left behind by a process that died.
      _ = unlinkat(directory.number, name, 0)
      number = retrying { openat(directory.number, name, flags, 0o666) }
    }
    guard number >= 0 else {
      throw StorageError.posix(errno, "Making the file \(directory.path(of: name)) failed")
    }
    return FileDescriptor(owning: number, path: directory.path(of: name))
  }

  /// Removes a file if it is there. One that cannot be removed is removed by the next open.
  func remove(_ name: StagedName) {
    _ = name.withName { unlinkat(directory.number, $0, 0) }
  }

  func contains(_ name: StagedName) throws -> Bool {
    try name.withName { try directory.status(of: $0) != nil }
  }

  /// Removes what is left over.
  func removeAll() throws {
    try directory.forEachName { name, _ in _ = unlinkat(directory.number, name, 0) }
  }
}
