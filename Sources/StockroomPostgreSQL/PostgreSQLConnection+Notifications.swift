import StockroomCPostgreSQL

/// What the server says beside the results of statements.
extension PostgreSQLConnection {
  /// Whether a commit has been made here, and the server has stopped waiting until it is on another machine
  /// too.
  var hasGivenUpReplication: Bool { notices.functions.contains("SyncRepWaitForLSN") }

  /// The descriptor on which notifications arrive.
  var socket: Int32 { PQsocket(handle) }

  /// The payloads of the notifications that have arrived.
  func notifications() throws -> [String] {
    guard PQconsumeInput(handle) == 1 else { throw lost() }
    var payloads: [String] = []
    while let notification = PQnotifies(handle) {
      payloads.append(String(cString: notification.pointee.extra))
      PQfreemem(notification)
    }
    // libpq closes the socket while it checks for notifications if the received data violate the protocol.
    if PQstatus(handle) == CONNECTION_BAD { throw lost() }
    return payloads
  }
}
