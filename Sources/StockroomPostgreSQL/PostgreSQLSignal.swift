import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Wakes a thread that waits for a socket.
final class PostgreSQLSignal: Sendable {
  /// Becomes readable after a signal.
  let reading: Int32
  private let writing: Int32

  init() throws {
    var descriptors: [Int32] = [0, 0]
    guard pipe(&descriptors) == 0 else { throw StorageError.posix(errno, "Creating a pipe failed") }
    (reading, writing) = (descriptors[0], descriptors[1])
    for descriptor in descriptors {
      _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
      _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    }
  }

  deinit {
    close(reading)
    close(writing)
  }

  /// If the pipe is full, there are enough signals.
  func send() { _ = withUnsafeBytes(of: UInt8(0)) { write(writing, $0.baseAddress, 1) } }

  /// Returns when the socket is readable, after a signal, or after the time limit.
  func wait(for socket: Int32?, atMost limit: Duration?) {
    var descriptors = [pollfd(fd: reading, events: Int16(POLLIN), revents: 0)]
    if let socket { descriptors.append(pollfd(fd: socket, events: Int16(POLLIN), revents: 0)) }
    let milliseconds = limit?.roundedMilliseconds ?? -1
    poll(&descriptors, nfds_t(descriptors.count), milliseconds)
    var bytes = [UInt8](repeating: 0, count: 64)
    while read(reading, &bytes, bytes.count) > 0 {}
  }
}
