extension NetworkProxy {
  /// The direction of bytes.
  enum Direction: String, CaseIterable, Sendable {
    case toServer = "to the server"
    case toEngine = "to the engine"
  }

  /// How the proxy treats connections.
  enum Mode: Sendable {
    /// Passes everything on.
    case open
    /// Accepts connections, but passes nothing on.
    case silent
    /// Passes on this many bytes of answers, and then nothing.
    case stalling(after: Int)
    /// Accepts no connections, and ends existing ones.
    case away
    /// Does not answer connection attempts, and ends existing connections.
    case unreachable
    /// Passes bytes on one at a time.
    case dripping
    /// Passes on one byte of answers at a time, with a pause after each.
    case trickling(pause: Duration)
    /// Ends its side of each new connection at once, as a server that has reached its connection limit does.
    case refusing
  }

  /// Ends every connection once this many bytes have been passed on in one direction, even in the middle of a
  /// message.
  struct Cut: Sendable {
    var direction: Direction
    var bytes: Int
  }
}
