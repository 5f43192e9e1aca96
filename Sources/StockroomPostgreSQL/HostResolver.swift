import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Resolves names of hosts. The system does so without a limit, and without a way to give up, so that a thread of its own waits for it.
final class HostResolver: Sendable {
  private let answer = MutexProtected<Result<[String], any Error>?>(nil)

  /// The addresses of the host; one that is nil if libpq needs none.
  static func addresses(
    of host: PostgreSQLAddress.Host, until deadline: ContinuousClock.Instant, meanwhile: () throws -> Void
  ) throws -> [String?] {
    guard let name = host.name, host.address == nil, !name.hasPrefix("/"), !name.hasPrefix("@") else {
      return [nil]
    }
    let resolver = HostResolver()
    let thread = DedicatedThread()
    try thread.enqueue {
      let result = Result { try resolve(name) }
      resolver.answer.withLock { $0 = result }
      // It ends by itself, whoever still waits by then.
      thread.stop()
    }
    while ContinuousClock.now < deadline {
      if let result = resolver.answer.withLock({ $0 }) { return try result.get() }
      usleep(200)
      try meanwhile()
    }
    throw PostgreSQLFailure(
      sqlState: nil, text: "the name \(name) has not been resolved in time", isConnectionLost: true)
  }

  private static func resolve(_ name: String) throws -> [String] {
    var hints = addrinfo()
    #if canImport(Darwin) || canImport(Musl)
      hints.ai_socktype = SOCK_STREAM
    #else
      hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    #endif
    var list: UnsafeMutablePointer<addrinfo>?
    let status = getaddrinfo(name, nil, &hints, &list)
    guard status == 0 else {
      let reason = gai_strerror(status).map { String(cString: $0) } ?? "error \(status)"
      throw PostgreSQLFailure(
        sqlState: nil, text: "the name \(name) could not be resolved: \(reason)", isConnectionLost: true)
    }
    defer { freeaddrinfo(list) }
    var addresses: [String] = []
    var next = list
    while let info = next?.pointee {
      var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
      if getnameinfo(
        info.ai_addr, info.ai_addrlen, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST) == 0
      {
        addresses.append(text.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } ?? "" })
      }
      next = info.ai_next
    }
    return addresses
  }
}
