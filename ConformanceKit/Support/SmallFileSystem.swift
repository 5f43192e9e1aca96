import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A small file system for one check, which can be filled or made read-only.
struct SmallFileSystem: Sendable {
  /// The size in MiB of a file system that is filled repeatedly.
  static let usualSize = 8

  let directory: URL

  /// Mounts a file system on an existing directory.
  ///
  /// - Throws: ``Skip`` if that is not possible.
  init(on directory: URL, mebibytes: Int) throws {
    self.directory = directory
    #if !canImport(Darwin)
      guard System.isSuperuser else {
        throw Skip(reason: "Only the superuser can mount a small file system.")
      }
      guard mount("tmpfs", directory.systemPath, "tmpfs", 0, "size=\(mebibytes)m") == 0 else {
        throw Skip(reason: "Mounting a small file system failed: \(SystemError(errno)).")
      }
    #else
      throw Skip(reason: "The kit can create a small file system on Linux only.")
    #endif
  }

  /// Makes the file system read-only. No file may be open for writing.
  func makeReadOnly() throws {
    #if !canImport(Darwin)
      guard
        mount("tmpfs", directory.systemPath, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), nil)
          == 0
      else { throw Skip(reason: "Making a file system read-only failed: \(SystemError(errno)).") }
    #endif
  }

  /// Unmounts the file system, at once if it is unused, and otherwise as soon as it is.
  func unmount() {
    #if !canImport(Darwin)
      umount2(directory.systemPath, Int32(MNT_DETACH))
    #endif
  }
}

extension CheckContext {
  /// A separate file system for the check, which is removed at the end of the check.
  func smallDisk(mebibytes: Int = SmallFileSystem.usualSize) throws -> SmallFileSystem {
    let directory = root.appending(path: "disk", directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let disk = try SmallFileSystem(on: directory, mebibytes: mebibytes)
    addTeardown { disk.unmount() }
    return disk
  }

  /// Like ``smallDisk(mebibytes:)``, for a check that uses the engine on the file system before it is filled or made
  /// read-only.
  ///
  /// - Throws: ``Skip`` if the engine does not work there. It may need something that this file system lacks, such as
  ///   extended attributes or direct access.
  func smallDiskForEngine(mebibytes: Int = SmallFileSystem.usualSize) async throws -> SmallFileSystem {
    let disk = try smallDisk(mebibytes: mebibytes)
    let probe = disk.directory.appending(path: "probe", directoryHint: .isDirectory)
    do {
      let engine = try await open(probe)
      try await engine.write(data("v"), key: key("k"))
      try await close(engine)
    } catch let failure as CallFailure {
      throw Skip(reason: "The engine does not work on the kit's small file system: \(failure)")
    }
    if System.fileType(of: probe) != nil { try FileManager.default.removeItem(at: probe) }
    return disk
  }
}
