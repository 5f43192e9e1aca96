import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Waits for sockets, on a thread that may block.
enum PostgreSQLSocket {
  /// The duration of a wait before other waiting calls are checked.
  static let slice = Duration.milliseconds(50)

  /// Whether data or the end of the connection have arrived on the socket. Does not wait.
  static func isReadable(_ socket: Int32) -> Bool {
    var descriptor = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
    return poll(&descriptor, 1, 0) > 0
  }

  /// Waits until the socket is readable, or writable if requested.
  ///
  /// - Parameters:
  ///   - deadline: When to stop waiting.
  ///   - meanwhile: Called from time to time. An error that it throws ends the wait.
  /// - Returns: What the socket is ready for. Neither if the deadline has passed and no data have arrived. Data that
  ///   arrived while this process was stopped or not scheduled count as arrived in time.
  static func wait(
    for socket: Int32, reading: Bool = true, writing: Bool = false, until deadline: ContinuousClock.Instant,
    meanwhile: () throws -> Void = {}
  ) throws -> (reading: Bool, writing: Bool) {
    while true {
      let left = deadline - ContinuousClock.now
      let isLate = left <= .zero
      // After the deadline, only an answer matters.
      let wanted = (reading ? Int16(POLLIN) : 0) | (writing && !isLate ? Int16(POLLOUT) : 0)
      var descriptor = pollfd(fd: socket, events: wanted, revents: 0)
      let count = poll(&descriptor, 1, isLate ? 0 : min(left, slice).roundedMilliseconds)
      if count < 0, errno != EINTR { throw StorageError.posix(errno, "Waiting for the server failed") }
      if count > 0 {
        // An error or the end of the connection is reported when reading.
        let isOver = descriptor.revents & ~Int16(POLLIN | POLLOUT) != 0
        let canRead = isOver || descriptor.revents & Int16(POLLIN) != 0
        return (reading && canRead, writing && (isOver || descriptor.revents & Int16(POLLOUT) != 0))
      }
      if isLate { return (false, false) }
      try meanwhile()
    }
  }
}

extension Duration {
  /// From one to the maximum that `poll` and the server accept.
  var roundedMilliseconds: Int32 {
    let (seconds, attoseconds) = min(self, .milliseconds(Int32.max)).components
    return max(1, Int32(clamping: seconds * 1_000 + attoseconds / 1_000_000_000_000_000))
  }
}
