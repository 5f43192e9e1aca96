import StockroomCore

/// A path that leads to the same file for as long as the engine is open, or the engine's place is not there any more.
///
/// Descriptors stay with what was opened, wherever it goes. What is done through them must neither be acknowledged nor
/// believed when those who open the path now do not see it (rule C6).
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
