import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// If the server grants an engine too few connections, lets its writing and its reading threads use them alternately.
///
/// A side that has no connection, and is refused one by the server, requests one from the other side. The other side
/// ends one of its connections when it is no longer in use, and does not reconnect before the first side has connected
/// or given up.
final class PostgreSQLConnectionShare: Sendable {
  enum Side: Sendable {
    case writing, reading

    fileprivate var other: Side { self == .writing ? .reading : .writing }
  }

  /// Access to the connections of a side.
  struct Holder: Sendable {
    /// The number of connections.
    let count: @Sendable () -> Int
    /// Ends one of them when it is not in use any more.
    let release: @Sendable () -> Void
  }

  private struct State {
    var holders: [Side: Holder] = [:]
    /// The side that a connection has been released for.
    var reservation: (side: Side, end: ContinuousClock.Instant)?
  }

  private let state = MutexProtected(State())

  /// How long a released connection is reserved for the side that has requested it. A side repeats its request more
  /// often.
  private static let timeout = Duration.seconds(3)

  func setHolder(of side: Side, _ holder: Holder) { state.withLock { $0.holders[side] = holder } }

  /// The number of connections that can be released.
  var count: Int {
    let holders = state.withLock { Array($0.holders.values) }
    return holders.reduce(0) { $0 + $1.count() }
  }

  /// Requests a connection from the other side. Call it when the server has refused one.
  func request(for side: Side) {
    let holder = state.withLock { $0.holders[side.other] }
    guard let holder, holder.count() > 0 else { return }
    // Before the release, after which the other side may reconnect at once.
    state.withLock { $0.reservation = (side, ContinuousClock.now + Self.timeout) }
    holder.release()
  }

  /// Waits while a connection is reserved for the other side.
  func wait(
    for side: Side, until deadline: ContinuousClock.Instant, _ meanwhile: () throws -> Void
  ) throws {
    while let end = endOfReservation(for: side.other), ContinuousClock.now < min(end, deadline) {
      usleep(5_000)
      try meanwhile()
    }
  }

  private func endOfReservation(for side: Side) -> ContinuousClock.Instant? {
    state.withLock { state in
      guard let reservation = state.reservation, reservation.side == side else { return nil }
      return reservation.end
    }
  }

  /// The side has connected, or given up.
  func end(for side: Side) {
    state.withLock { state in
      if state.reservation?.side == side { state.reservation = nil }
    }
  }
}
