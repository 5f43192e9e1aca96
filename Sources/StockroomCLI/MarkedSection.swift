import ArgumentParser
import Foundation
import StockroomCore

/// A section of a text between two marker lines, which a command updates.
struct MarkedSection {
  static let conformance = MarkedSection(name: "conformance", content: "the matrix")

  let name: String
  /// The name of the content in messages.
  let content: String

  var begin: String { "<!-- \(name) -->" }
  var end: String { "<!-- end of \(name) -->" }

  /// The content between its marker lines.
  func around(_ content: String) -> String { begin + "\n" + content + "\n" + end }

  /// Replaces the content between the marker lines, and keeps the rest of the file. Does not write the file if it has
  /// this content already.
  ///
  /// - Throws: `ValidationError` unless the file contains each marker line once, in order; `StorageError` that names
  ///   the path if the file cannot be read or written.
  func write(_ content: String, to file: OutputFile) throws {
    let old = try file.read()
    let new = try parts(of: old, in: file)
    let text = new.before + around(content) + new.after
    if text != old { try file.write(text) }
  }

  /// The text with the content between its marker lines; nil unless it contains each of them once, in order.
  func replacing(in text: String, with content: String) -> String? {
    parts(of: text).map { $0.before + around(content) + $0.after }
  }

  /// The content between the marker lines of a text; nil unless it contains each of them once, in order.
  func content(of text: String) -> String? {
    parts(of: text).map(\.content)
  }

  private func parts(of text: String) -> (before: String, content: String, after: String)? {
    let begins = text.components(separatedBy: begin + "\n")
    let ends = text.components(separatedBy: end)
    guard begins.count == 2, ends.count == 2, begins[0].count < ends[0].count else { return nil }
    let content = ends[0].dropFirst(begins[0].count + begin.count + 1)
    return (begins[0], String(content.hasSuffix("\n") ? content.dropLast() : content), ends[1])
  }

  private func parts(
    of text: String, in file: OutputFile
  ) throws -> (before: String, content: String, after: String) {
    if let parts = parts(of: text) { return parts }
    throw ValidationError(
      "\(file.path) needs a line \(begin) and below it a line \(end), for \(content) between them.")
  }
}
