import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The versions of Stockroom and its libraries, and the size and checksum of this command's executable, which
/// distinguish builds.
///
/// Reads the whole executable.
///
/// - Throws: `StorageError` that names the file if it cannot be read; with code `unsupported` if its path is not known.
func buildDescription() throws -> String {
  guard let executable = Bundle.main.executableURL else {
    throw StorageError(.unsupported, "The path of this command is not known.")
  }
  let path = executable.resolvingSymlinksInPath().path(percentEncoded: false)
  guard let file = try FileDescriptor.openFile(atPath: path, O_RDONLY) else {
    throw StorageError(.io, "The file of this command is no longer at \(path.escaped).")
  }
  var checksum: UInt32 = 0
  var size = 0
  while case let bytes = try file.readBytes(1 << 20, at: size), !bytes.isEmpty {
    checksum = bytes.withUnsafeBytes { CRC32C.checksum($0, after: checksum) }
    size += bytes.count
  }
  let versions = softwareVersions.joined(separator: ", ")
  return "\(versions), a program of \(size) bytes with the checksum \(String(checksum, radix: 16))"
}
