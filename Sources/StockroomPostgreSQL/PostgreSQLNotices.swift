import StockroomCPostgreSQL

/// The functions of the server that have sent notices. libpq calls back on the thread that uses the
/// connection.
final class PostgreSQLNotices {
  private(set) var functions: Set<String> = []

  /// Installs this object as the receiver of notices. It must live as long as the connection.
  init(on handle: OpaquePointer) {
    PQsetNoticeReceiver(
      handle,
      { box, result in
        guard let box, let function = DiagnosticField.function.text(in: result) else { return }
        Unmanaged<PostgreSQLNotices>.fromOpaque(box).takeUnretainedValue().functions.insert(function)
      }, Unmanaged.passUnretained(self).toOpaque())
  }

  func clear() { if !functions.isEmpty { functions = [] } }
}
