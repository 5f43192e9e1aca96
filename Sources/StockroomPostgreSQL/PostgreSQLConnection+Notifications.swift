import StockroomCPostgreSQL

/// Messages of the server in addition to the results of statements.
extension PostgreSQLConnection {
  /// Whether the server has committed a transaction locally, but stopped waiting for a standby to confirm it.
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
