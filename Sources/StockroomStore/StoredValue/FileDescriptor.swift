#if !canImport(Darwin)
  import Foundation
  import StockroomCore

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Musl)
    import Musl
  #endif

  /// A file descriptor that is closed when its last reference is released.
  final class FileDescriptor: Sendable {
    /// Negative if opening failed.
    let number: Int32

    init(_ number: Int32) { self.number = number }

    deinit { if number >= 0 { close(number) } }

    func status(path: String) throws -> stat {
      var status = stat()
      guard fstat(number, &status) == 0 else { throw StorageError.posix(errno, "Examining \(path) failed.") }
      return status
    }

    func readAll(path: String) throws -> Data {
      var bytes = Data()
      var buffer = [UInt8](repeating: 0, count: 1 << 16)
      while true {
        let count = read(number, &buffer, buffer.count)
        if count < 0, errno == EINTR { continue }
        guard count >= 0 else { throw StorageError.posix(errno, "Reading \(path) failed.") }
        if count == 0 { return bytes }
        bytes.append(contentsOf: buffer[..<count])
      }
    }

    func writeAll(_ bytes: Data, path: String) throws {
      try bytes.withUnsafeBytes { buffer in
        var rest = buffer[...]
        while !rest.isEmpty {
          let count = write(number, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
          if count < 0, errno == EINTR { continue }
          guard count >= 0 else { throw StorageError.posix(errno, "Writing \(path) failed.") }
          rest = rest.dropFirst(count)
        }
      }
    }
  }
#endif
