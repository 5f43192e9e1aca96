import Foundation

@testable import ConformanceKit

extension NetworkSocket {
  /// Returns whether everything has been sent before the deadline.
  static func send(
    _ bytes: Data, to descriptor: Int32, until deadline: ContinuousClock.Instant
  ) -> Bool {
    var sent = 0
    while sent < bytes.count {
      guard ContinuousClock.now < deadline else { return false }
      var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
      guard poll(&waiting, 1, 10) > 0 else { continue }
      let count = bytes.withUnsafeBytes { bytes in
        sendSome(UnsafeRawBufferPointer(rebasing: bytes[sent...]), to: descriptor)
      }
      if count < 0, errno != EINTR, errno != EAGAIN { return false }
      sent += max(0, count)
    }
    return true
  }
}

/// Sends as much as the system accepts at once.
private func sendSome(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) -> Int {
  #if canImport(Darwin)
    let flags = MSG_DONTWAIT
  #else
    let flags = Int32(truncatingIfNeeded: MSG_NOSIGNAL) | Int32(truncatingIfNeeded: MSG_DONTWAIT)
  #endif
  return send(descriptor, bytes.baseAddress, bytes.count, flags)
}
