import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

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
    // What is read would not be there any more.
    if isSpecial { throw StorageError(.unsupported, "\(path) is a pipe or a device, and not a file.") }
    return try naming("Reading \(path) failed") { try String(contentsOf: url, encoding: .utf8) }
  }

  /// All that is there. A pipe or a device is read to its end.
  func readBytes() throws -> Data {
    guard isSpecial else { return try naming("Reading \(path) failed") { try Data(contentsOf: url) } }
    let descriptor = try openedToRead()
    defer { close(descriptor) }
    return try readToEnd(of: descriptor, named: path, limit: maximumValueSize)
  }

  /// Opens what is there. A pipe may have to wait for a program that writes to it.
  func openedToRead() throws -> Int32 {
    let descriptor = retrying { open(path, O_RDONLY | O_CLOEXEC) }
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Reading \(path) failed") }
    return descriptor
  }

  /// The file itself, to which symbolic links lead: in place of a link another file would be made.
  var target: URL {
    url.deletingLastPathComponent().resolvingSymlinksInPath().standardizedFileURL
      .appending(path: url.lastPathComponent).resolvingSymlinksInPath()
  }

  /// Whether the path leads to something that must not be replaced, and may be read once only, such as a pipe or a device.
  var isSpecial: Bool {
    var raw = stat()
    // Why it cannot be looked at is found out when it is written.
    guard stat(path, &raw) == 0 else { return false }
    let status = FileStatus(raw)
    return !status.isRegularFile && !status.isDirectory
  }

  /// Writes or replaces the file atomically. A pipe or a device is written to.
  func write(_ text: String) throws {
    if isSpecial { return try writeToSpecial(text) }
    try naming("Writing \(path) failed") { try Data(text.utf8).write(to: target, options: .atomic) }
  }

  private func writeToSpecial(_ text: String) throws {
    let descriptor = retrying { open(path, O_WRONLY | O_CLOEXEC) }
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Writing \(path) failed") }
    defer { close(descriptor) }
    var text = text
    let number = text.withUTF8 { writeAll(UnsafeRawBufferPointer($0), to: descriptor) }
    if number != 0 { throw StorageError.posix(number, "Writing \(path) failed") }
  }

  /// Opens the file, to which what is written is added.
  func openedAtEnd() throws -> FileHandle {
    try naming("Writing \(path) failed") {
      let handle = try FileHandle(forWritingTo: url)
      try handle.seekToEnd()
      return handle
    }
  }

  /// Throws what writing would throw, so that a long command fails before its work.
  func check() throws {
    var isDirectory: ObjCBool = false
    if FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory), isDirectory.boolValue {
      throw StorageError.posix(EISDIR, "Writing \(path) failed")
    }
    if isSpecial {
      guard access(path, W_OK) == 0 else { throw StorageError.posix(errno, "Writing \(path) failed") }
      return
    }
    let trial = target.deletingLastPathComponent().appending(path: ".\(UUID().uuidString)")
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
