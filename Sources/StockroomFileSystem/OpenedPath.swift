import StockroomCore

/// The path of a file that the engine has open, to check that it still leads to the same file.
///
/// Descriptors refer to the file that was opened, wherever it is moved. The results of using them must
/// neither be acknowledged nor returned if a process that opens the path now does not see them (rule C6).
struct OpenedPath: Sendable {
  private let path: String
  private let identity: FileIdentity

  init(_ file: FileDescriptor) throws {
    path = file.path
    identity = try file.status().identity
  }

  /// - Throws: `StorageError` with code `io` if the path leads elsewhere or to nothing. Costs one system call.
  func check() throws {
    guard let now = try FileIdentity(path: path) else {
      throw StorageError(
        .io, "\(path) has been moved or removed while the engine was open on it. Open it again.")
    }
    guard now == identity else {
      throw StorageError(.io, "\(path) has been replaced while the engine was open on it. Open it again.")
    }
  }
}
