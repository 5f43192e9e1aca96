import ArgumentParser
import Foundation
import StockroomCore

/// A part of a text between two marks, each on a line of its own, that a command brings up to date.
struct MarkedSection {
  static let conformance = MarkedSection(name: "conformance", content: "the matrix")

  let name: String
  /// What people call what is between the marks.
  let content: String

  var begin: String { "<!-- \(name) -->" }
  var end: String { "<!-- end of \(name) -->" }

  /// The content with its marks.
  func around(_ content: String) -> String { begin + "\n" + content + "\n" + end }

  /// Puts the content between the marks. What is around them stays, and a file that has it already is not written.
  ///
  /// - Throws: `ValidationError` if the marks are not there, each once and in order; `StorageError` that names the path
  ///   if the file cannot be read or written.
  func write(_ content: String, to file: OutputFile) throws {
    let old = try file.read()
    let new = try parts(of: old, in: file)
    let text = new.before + around(content) + new.after
    if text != old { try file.write(text) }
  }

  /// The text with the content between its marks; nil if they are not there, each once and in order.
  func replacing(in text: String, with content: String) -> String? {
    parts(of: text).map { $0.before + around(content) + $0.after }
  }

  /// What is between the marks of a text; nil if they are not there, each once and in order.
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
