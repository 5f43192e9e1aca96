import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Makes writing to a closed pipe an error instead of a signal, so that temporary directories are removed.
func ignoreBrokenPipes() {
  signal(SIGPIPE, SIG_IGN)
}

/// Opens `/dev/null` in place of each standard stream that is closed. Otherwise a file that is opened later would get
/// its number, and with it the output of the command. As with a closed stream, reading standard input and writing to
/// the other streams fails. Call this before anything is opened.
func reserveClosedStandardStreams() {
  for number in STDIN_FILENO...STDERR_FILENO where fcntl(number, F_GETFD) == -1 && errno == EBADF {
    // `open` returns the lowest number that is free, which is this one.
    guard open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) == number else {
      writeToStandardError("stockroom: Standard streams are closed, and opening /dev/null instead failed.\n")
      exit(1)
    }
  }
}

/// Reads standard input to its end.
///
/// - Throws: as ``readToEnd(of:named:limit:)``.
func readStandardInput() throws -> Data {
  try readToEnd(of: STDIN_FILENO, named: "standard input", limit: maximumValueSize)
}

/// Reads from a descriptor to its end.
///
/// - Throws: `StorageError` with the cause; with code `valueTooLarge` if there are more bytes than the limit.
func readToEnd(of descriptor: Int32, named name: String, limit: Int) throws -> Data {
  // Reading one byte more than the limit detects that the limit is exceeded.
  var capacity = min(1 << 16, limit + 1)
  // A `Data` that grows would end the process if there is no memory left.
  guard var bytes = malloc(capacity) else { throw StorageError.posix(ENOMEM, "Reading \(name) failed") }
  var count = 0
  do {
    while true {
      if count == capacity {
        if count > limit {
          throw StorageError(
            .valueTooLarge, "More than \(limit) bytes come from \(name), which do not fit into memory.")
        }
        let larger = capacity > limit / 2 ? limit + 1 : 2 * capacity
        guard let grown = realloc(bytes, larger) else {
          throw StorageError.posix(ENOMEM, "Reading \(name) failed after \(count) bytes")
        }
        (bytes, capacity) = (grown, larger)
      }
      let received = retrying { read(descriptor, bytes + count, capacity - count) }
      if received == 0 { break }
      if received > 0 {
        count += received
      } else if errno == EAGAIN || errno == EWOULDBLOCK {
        // Another program that has the same pipe or terminal open has made it non-blocking.
        var wanted = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        _ = poll(&wanted, 1, -1)
      } else {
        throw StorageError.posix(errno, "Reading \(name) failed")
      }
    }
  } catch {
    free(bytes)
    throw error
  }
  return Data(bytesNoCopy: bytes, count: count, deallocator: .free)
}

/// Writes text to standard output, unbuffered.
///
/// - Throws: ``Interrupted`` if the pipe has been closed, as by `head`; `StorageError` if writing fails.
func writeToStandardOutput(_ text: String) throws {
  var text = text
  try text.withUTF8 { try writeToStandardOutput(UnsafeRawBufferPointer($0)) }
}

/// Writes bytes to standard output, as ``writeToStandardOutput(_:)`` does text.
func writeToStandardOutput(_ data: Data) throws {
  try data.withUnsafeBytes { try writeToStandardOutput($0) }
}

private func writeToStandardOutput(_ bytes: UnsafeRawBufferPointer) throws {
  let number = writeAll(bytes, to: STDOUT_FILENO)
  if number == EPIPE { throw Interrupted(signal: SIGPIPE) }
  if number != 0 { throw StorageError.posix(number, "Writing to standard output failed") }
}

/// Writes a message to standard error. Errors are ignored, as there is nowhere to report them.
func writeToStandardError(_ text: String) {
  var text = text
  _ = text.withUTF8 { writeAll(UnsafeRawBufferPointer($0), to: STDERR_FILENO) }
}

/// Writes all of the bytes. Returns 0, or the error number.
func writeAll(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) -> Int32 {
  var rest = bytes
  while !rest.isEmpty {
    let count = write(descriptor, rest.baseAddress, rest.count)
    if count >= 0 {
      rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count))
    } else if errno == EAGAIN || errno == EWOULDBLOCK {
      // Another program that has the same pipe or terminal open has made it non-blocking.
      var wanted = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
      _ = poll(&wanted, 1, -1)
    } else if errno != EINTR {
      return errno
    }
  }
  return 0
}
