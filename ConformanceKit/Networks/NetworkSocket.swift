import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Sockets of the system, independent of any engine's code.
enum NetworkSocket {
  #if canImport(Darwin) || canImport(Musl)
    private static let stream = SOCK_STREAM
  #else
    private static let stream = Int32(SOCK_STREAM.rawValue)
  #endif

  private static func make(_ family: Int32) throws -> Int32 {
    let descriptor = socket(family, stream, 0)
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Creating a socket failed") }
    _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    #if canImport(Darwin)
      var isOn: Int32 = 1
      setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &isOn, socklen_t(MemoryLayout<Int32>.size))
    #endif
    return descriptor
  }

  private static func loopback(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    return address
  }

  /// How many connections may wait to be accepted.
  static let backlog: Int32 = 128

  /// Sets the backlog of a socket that is already listening.
  static func setBacklog(_ count: Int32, of listener: Int32) { _ = systemListen(listener, count) }

  /// A socket that listens on a free port of 127.0.0.1.
  static func listen() throws -> (descriptor: Int32, port: UInt16) {
    let descriptor = try make(AF_INET)
    var address = loopback(0)
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let result = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        bind(descriptor, address, length) == 0 && systemListen(descriptor, backlog) == 0
          && getsockname(descriptor, address, &length) == 0
      }
    }
    guard result else {
      defer { close(descriptor) }
      throw StorageError.posix(errno, "Listening on a port failed")
    }
    return (descriptor, UInt16(bigEndian: address.sin_port))
  }

  /// Whether the other side has closed the connection, even if unread data remains.
  static func isEndedByPeer(_ socket: Int32) -> Bool {
    #if canImport(Darwin)
      var descriptor = pollfd(fd: socket, events: 0, revents: 0)
    #else
      // POLLRDHUP, which not every C library declares.
      var descriptor = pollfd(fd: socket, events: 0x2000, revents: 0)
    #endif
    return poll(&descriptor, 1, 0) > 0
  }

  /// Whether data or the end of the connection can be received.
  static func hasInput(_ socket: Int32) -> Bool {
    var descriptor = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
    return poll(&descriptor, 1, 0) > 0 && descriptor.revents & Int16(POLLIN) != 0
  }

  static func accept(_ listener: Int32) -> Int32? {
    while true {
      let descriptor = systemAccept(listener)
      if descriptor >= 0 {
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        return descriptor
      }
      if errno != EINTR, errno != ECONNABORTED { return nil }
    }
  }

  static func connect(to address: ConformanceServer.Address) throws -> Int32 {
    let descriptor: Int32
    let result: Int32
    switch address {
    case .loopback(let port):
      descriptor = try make(AF_INET)
      var address = loopback(port)
      result = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          systemConnect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
      }
    case .unixSocket(let path):
      descriptor = try make(AF_UNIX)
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      withUnsafeMutableBytes(of: &address.sun_path) { field in
        // The last byte remains zero.
        field.copyBytes(from: path.utf8.prefix(field.count - 1))
      }
      result = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          systemConnect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
      }
    }
    guard result == 0 else {
      defer { close(descriptor) }
      throw StorageError.posix(errno, "Connecting to the server failed")
    }
    return descriptor
  }

  /// Begins to connect to a port of 127.0.0.1, without waiting for an answer: see ``finishConnecting(_:while:)``.
  static func beginConnecting(to port: UInt16) throws -> Int32 {
    let descriptor = try make(AF_INET)
    _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    var address = loopback(port)
    let result = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        systemConnect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard result == 0 || errno == EINPROGRESS else {
      defer { close(descriptor) }
      throw StorageError.posix(errno, "Connecting to the server failed")
    }
    return descriptor
  }

  /// Waits for the answer while the closure returns true. Returns whether the socket is connected. It is blocking from
  /// then on.
  ///
  /// - Throws: `StorageError` if the connection fails. The socket is not closed.
  static func finishConnecting(_ descriptor: Int32, while mayWait: () -> Bool) throws -> Bool {
    var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
    while poll(&waiting, 1, 10) <= 0 {
      if !mayWait() { return false }
    }
    var failure: Int32 = 0
    var length = socklen_t(MemoryLayout<Int32>.size)
    getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &failure, &length)
    guard failure == 0 else { throw StorageError.posix(failure, "Connecting to the server failed") }
    _ = fcntl(descriptor, F_SETFL, 0)
    return true
  }

  static func receive(_ descriptor: Int32, _ buffer: inout [UInt8], _ limit: Int) -> Int {
    while true {
      let count = recv(descriptor, &buffer, limit, 0)
      if count >= 0 || errno != EINTR { return count }
    }
  }

  /// Returns whether everything has been sent.
  static func send(_ bytes: ArraySlice<UInt8>, to descriptor: Int32) -> Bool {
    #if canImport(Darwin)
      let flags: Int32 = 0
    #else
      let flags = Int32(truncatingIfNeeded: MSG_NOSIGNAL)
    #endif
    return bytes.withUnsafeBytes { bytes in
      var rest = bytes[...]
      while !rest.isEmpty {
        let count = systemSend(
          descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count, flags)
        if count < 0, errno != EINTR { return false }
        rest = rest.dropFirst(max(0, count))
      }
      return true
    }
  }

  /// Waits until data can be received. Returns whether there is any before the deadline.
  static func wait(_ descriptor: Int32, until deadline: ContinuousClock.Instant) -> Bool {
    while ContinuousClock.now < deadline {
      var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      if poll(&waiting, 1, 10) > 0 { return true }
    }
    return false
  }

  /// Ends the sending direction. Data can still be received.
  static func endSending(_ descriptor: Int32) { _ = shutdown(descriptor, Int32(1)) }

  static func shutDown(_ descriptor: Int32) { _ = shutdown(descriptor, Int32(2)) }

  static func close(_ descriptor: Int32) { _ = systemClose(descriptor) }
}

// The methods above have the same names as these functions.

private func systemListen(_ descriptor: Int32, _ backlog: Int32) -> Int32 { listen(descriptor, backlog) }

private func systemAccept(_ descriptor: Int32) -> Int32 { accept(descriptor, nil, nil) }

private func systemConnect(
  _ descriptor: Int32, _ address: UnsafePointer<sockaddr>?, _ length: socklen_t
) -> Int32 {
  connect(descriptor, address, length)
}

private func systemSend(
  _ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int, _ flags: Int32
) -> Int {
  send(descriptor, bytes, count, flags)
}

private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }
