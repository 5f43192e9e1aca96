import Foundation
import StockroomCore

/// A file that a command writes or reads. Errors name its path and the cause.
struct OutputFile {
  let url: URL

  init(_ path: String) { url = URL(commandLinePath: path) }

  var path: String { url.path(percentEncoded: false) }

  /// The path of this file with another extension.
  func beside(withExtension suffix: String) -> OutputFile {
    OutputFile(url.deletingPathExtension().appendingPathExtension(suffix).path(percentEncoded: false))
  }

  func read() throws -> String {
    try naming("Reading \(path) failed") { try String(contentsOf: url, encoding: .utf8) }
  }

  func readBytes() throws -> Data {
    try naming("Reading \(path) failed") { try Data(contentsOf: url) }
  }

  /// Writes or replaces the file atomically.
  func write(_ text: String) throws {
    try naming("Writing \(path) failed") { try Data(text.utf8).write(to: url, options: .atomic) }
  }

  /// Throws what writing would throw, so that a long command fails before its work.
  func check() throws {
    var isDirectory: ObjCBool = false
    if FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory), isDirectory.boolValue {
      throw StorageError.posix(EISDIR, "Writing \(path) failed")
    }
    let trial = url.deletingLastPathComponent().appending(path: ".\(UUID().uuidString)")
    try naming("Writing \(path) failed") {
      try Data().write(to: trial)
      try FileManager.default.removeItem(at: trial)
    }
  }

  private func naming<Result>(_ message: String, _ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch {
      let cause = (error as? CocoaError)?.underlying as? POSIXError
      throw cause.map { StorageError.posix($0.code.rawValue, message) }
        ?? StorageError(.io, message, underlying: error)
    }
  }
}
