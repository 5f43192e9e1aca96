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
  private let start = ContinuousClock.now

  /// The resolutions in progress, by name. Attempts to connect share them, so that they do not start a thread each while
  /// no name server answers.
  private static let underWay = MutexProtected<[String: HostResolver]>([:])

  /// After this time without an answer, the next attempt to connect starts a new resolution of the name.
  private static let timeout = Duration.seconds(60)

  private init() throws { isAnswered = try PostgreSQLSignal() }

  /// The addresses of the host; a single nil if libpq needs none.
  static func addresses(
    of host: PostgreSQLAddress.Host, until deadline: ContinuousClock.Instant, meanwhile: () throws -> Void
  ) throws -> [String?] {
    guard let name = host.name, host.address == nil, !name.hasPrefix("/"), !name.hasPrefix("@") else {
      return [nil]
    }
    let current = try resolver(of: name) { try resolve($0) }
    guard let found = try current.addresses(until: deadline, meanwhile: meanwhile) else {
      throw PostgreSQLFailure(
        sqlState: nil, text: "the name \(name) has not been resolved in time", isConnectionLost: true)
    }
    return found
  }

  /// Returns the resolver that is resolving the name already, or a new one, which calls `resolve` on a separate thread.
  static func resolver(
    of name: String, by resolve: @escaping @Sendable (String) throws -> [String]
  ) throws -> HostResolver {
    try underWay.withLock { underWay in
      if let other = underWay[name], other.start + timeout > .now { return other }
      let new = try HostResolver()
      try new.begin(name, resolve)
      underWay[name] = new
      return new
    }
  }

  private func begin(_ name: String, _ resolve: @escaping @Sendable (String) throws -> [String]) throws {
    let thread = DedicatedThread()
    try thread.enqueue { [self] in
      let result = Result { try resolve(name) }
      answer.withLock { $0 = result }
      Self.underWay.withLock { underWay in
        if underWay[name] === self { underWay[name] = nil }
      }
      isAnswered.send()
      // The thread ends by itself, even if no caller waits for the answer any more.
      thread.stop()
    }
  }

  /// Waits for the addresses. Other callers may wait for the same answer. Nil if they have not been found in time.
  func addresses(until deadline: ContinuousClock.Instant, meanwhile: () throws -> Void) throws -> [String]? {
    // The signal is not consumed, since other callers may be waiting for it.
    _ = try PostgreSQLSocket.wait(for: isAnswered.reading, until: deadline, meanwhile: meanwhile)
    return try answer.withLock { $0 }?.get()
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
