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

  /// This file with another extension.
  func beside(withExtension suffix: String) -> OutputFile {
    OutputFile(url.deletingPathExtension().appendingPathExtension(suffix).path(percentEncoded: false))
  }

  func read() throws -> String {
    // Reading a pipe or a device would consume its contents.
    if isSpecial { throw StorageError(.unsupported, "\(path) is a pipe or a device, and not a file.") }
    return try naming("Reading \(path) failed") { try String(contentsOf: url, encoding: .utf8) }
  }

  /// The contents of the file. A pipe or a device is read to its end.
  func readBytes() throws -> Data {
    guard isSpecial else { return try naming("Reading \(path) failed") { try Data(contentsOf: url) } }
    let descriptor = try openedToRead()
    defer { close(descriptor) }
    return try readToEnd(of: descriptor, named: path, limit: maximumValueSize)
  }

  /// Opens the file for reading. Opening a pipe waits until a program has opened it for writing.
  func openedToRead() throws -> Int32 {
    let descriptor = retrying { open(path, O_RDONLY | O_CLOEXEC) }
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Reading \(path) failed") }
    return descriptor
  }

  /// The URL with symbolic links resolved. Replacing a link would not change the file to which it leads.
  var target: URL {
    url.deletingLastPathComponent().resolvingSymlinksInPath().standardizedFileURL
      .appending(path: url.lastPathComponent).resolvingSymlinksInPath()
  }

  /// Whether the path leads to a pipe, a device or the like, which must not be replaced and may be readable only once.
  var isSpecial: Bool {
    var raw = stat()
    // If `stat` fails, reading or writing the file reports the error.
    guard stat(path, &raw) == 0 else { return false }
    let status = FileStatus(raw)
    return !status.isRegularFile && !status.isDirectory
  }

  /// Writes or replaces the file atomically. A pipe or a device is not replaced, but written to.
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

  /// Opens an existing file for appending.
  func openedAtEnd() throws -> FileHandle {
    try naming("Writing \(path) failed") {
      let handle = try FileHandle(forWritingTo: url)
      try handle.seekToEnd()
      return handle
    }
  }

  /// Throws the error that writing would throw, so that a long command fails before its work.
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
