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

/// The name of a staged file: its batch, its number in the batch, and whether it contains the metadata instead of the value.
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

/// The directory in which files are written before they are moved to where readers find them. Only the holder of the lock has
/// files in it, so all files that the next holder finds have been left by a process that died.
struct Staging: Sendable {
  static let name = "staging"

  let directory: FileDescriptor
  let permissions: FilePermissions

  /// Writes a file. If that fails, no file remains.
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
    if let file = try directory.makeFile(name, permissions) { return file }
    // Left by a process that died.
    _ = unlinkat(directory.number, name, 0)
    guard let file = try directory.makeFile(name, permissions) else {
      throw StorageError.posix(EEXIST, "Creating the file \(directory.path(of: name)) failed")
    }
    return file
  }

  /// Removes a file if it exists. A file that cannot be removed is removed by the next open.
  func remove(_ name: StagedName) {
    _ = name.withName { unlinkat(directory.number, $0, 0) }
  }

  func contains(_ name: StagedName) throws -> Bool {
    try name.withName { try directory.status(of: $0) != nil }
  }

  /// Removes left-over files.
  ///
  /// - Parameter prepare: Called first, if there are any. If it throws, all of them remain.
  func removeAll(after prepare: () throws -> Void) throws {
    var isPrepared = false
    try directory.forEachName { name, _ in
      if !isPrepared {
        try prepare()
        isPrepared = true
      }
      _ = unlinkat(directory.number, name, 0)
    }
  }
}
