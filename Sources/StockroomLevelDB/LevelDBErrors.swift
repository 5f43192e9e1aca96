import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An error of LevelDB. Its C interface reports every failure only as a text.
struct LevelDBFailure: Error, Sendable, CustomStringConvertible {
  let description: String
}

extension StorageError {
  /// The error for a failure that LevelDB reported.
  ///
  /// - Parameters:
  ///   - text: The library's text: the kind of failure, usually a path, and the system's text for `errno`.
  ///   - attempt: The attempted operation, as the beginning of a sentence.
  ///   - path: The directory of the database.
  static func levelDB(_ text: String, _ attempt: String, path: String) -> StorageError {
    let code = code(forLevelDB: text)
    let advice =
      switch code {
      case .locked: "it is open elsewhere, in this process or in another one"
      case .corrupted: "its files are corrupted"
      case .diskFull: "there is no room left on the device"
      default: "LevelDB reports an error"
      }
    return StorageError(
      code, "\(attempt) the LevelDB database in \(path) failed: \(advice).",
      underlying: LevelDBFailure(description: text))
  }

  private static func code(forLevelDB text: String) -> Code {
    if text.hasPrefix("Corruption:") { return .corrupted }
    if text.hasSuffix("already held by process") { return .locked }
    // The text ends with the result of strerror, in the language of the process.
    func ends(with number: Int32) -> Bool { text.hasSuffix(": " + SystemError(number).text) }
    if ends(with: EAGAIN) || ends(with: EACCES) && text.hasPrefix("IO error: lock ") { return .locked }
    // The first case is a missing table, the second a table that ends before a block that is to be read. For a
    // directory, EINVAL means that the file system does not support syncing it.
    let isOfTable = text.contains(".ldb: ") || text.contains(".sst: ")
    if ends(with: ENOENT) || ends(with: EINVAL) && isOfTable { return .corrupted }
    // The error does not concern the size of one value: a file of LevelDB holds many.
    if ends(with: EFBIG) { return .diskFull }
    for number in [ENOSPC, EDQUOT, EROFS, EACCES, EPERM] where ends(with: number) {
      return self.code(forErrno: number)
    }
    return .io
  }
}

extension SystemError {
  /// The system's text without the number.
  fileprivate var text: String {
    let number = ", errno \(number)"
    return description.hasSuffix(number) ? String(description.dropLast(number.count)) : description
  }
}
