import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Resolves host names. The system does so without a time limit, and without a way to cancel it, so a
/// separate thread waits for it.
final class HostResolver: Sendable {
  private let answer = MutexProtected<Result<[String], any Error>?>(nil)
  private let isAnswered: PostgreSQLSignal

  private init() throws { isAnswered = try PostgreSQLSignal() }

  /// The addresses of the host; a single nil if libpq needs none.
  static func addresses(
    of host: PostgreSQLAddress.Host, until deadline: ContinuousClock.Instant, meanwhile: () throws -> Void
  ) throws -> [String?] {
    guard let name = host.name, host.address == nil, !name.hasPrefix("/"), !name.hasPrefix("@") else {
      return [nil]
    }
    let resolver = try HostResolver()
    let thread = DedicatedThread()
    try thread.enqueue {
      let result = Result { try resolve(name) }
      resolver.answer.withLock { $0 = result }
      resolver.isAnswered.send()
      // It ends by itself, even if nobody waits for it any more.
      thread.stop()
    }
    _ = try PostgreSQLSocket.wait(for: resolver.isAnswered.reading, until: deadline, meanwhile: meanwhile)
    guard let answer = resolver.answer.withLock({ $0 }) else {
      throw PostgreSQLFailure(
        sqlState: nil, text: "the name \(name) has not been resolved in time", isConnectionLost: true)
    }
    return try answer.get()
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
