#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An error number of the operating system with its text, as the cause of a ``StorageError``.
package struct SystemError: Error, Sendable, Hashable, CustomStringConvertible {
  package let number: Int32

  package init(_ number: Int32) { self.number = number }

  package var description: String {
    var buffer = [CChar](repeating: 0, count: 256)
    // strerror is not thread-safe; strerror_r is, and its result differs between platforms.
    _ = strerror_r(number, &buffer, buffer.count)
    let text = String(decoding: buffer.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    return text.isEmpty ? "errno \(number)" : "\(text), errno \(number)"
  }
}

extension StorageError {
  /// The error for a failed system call.
  ///
  /// - Parameters:
  ///   - number: The value of `errno`, read before anything else could change it.
  ///   - message: The operation that failed, and its path.
  package static func posix(_ number: Int32, _ message: String) -> StorageError {
    StorageError(code(forErrno: number), message, underlying: SystemError(number))
  }

  package static func code(forErrno number: Int32) -> Code {
    switch number {
    case ENOSPC, EDQUOT: .diskFull
    case EROFS: .readOnly
    case EACCES, EPERM: .permissionDenied
    case EFBIG: .valueTooLarge
    default: .io
    }
  }

  /// The error for something that is not a regular file, but has the name of one of the engine's files.
  package static func notAFile(_ path: String) -> StorageError {
    StorageError(.corrupted, "\(path) should be a regular file, and is something else. Move it away.")
  }
}
