import ArgumentParser
import ConformanceKit
import Foundation
import StockroomCore

/// A text with the matrix of the contract between two marks, each on a line of its own.
struct MatrixFile {
  static let begin = "<!-- conformance -->"
  static let end = "<!-- end of conformance -->"

  let url: URL

  /// Puts the matrix between the marks. What is around them stays, and a file that has the matrix is not written.
  ///
  /// - Throws: `ValidationError` if the marks are not there, each once and in order; `StorageError` that names the path
  ///   if the file cannot be read or written.
  func write(_ matrix: ConformanceMatrix) throws {
    let path = url.path(percentEncoded: false)
    let old = try namingTheCause("Reading \(path) failed") { try String(contentsOf: url, encoding: .utf8) }
    guard let new = Self.replacing(in: old, with: matrix) else {
      throw ValidationError(
        "\(path) needs a line \(Self.begin) and below it a line \(Self.end), for the matrix between them.")
    }
    if new == old { return }
    try namingTheCause("Writing \(path) failed") { try Data(new.utf8).write(to: url, options: .atomic) }
  }

  /// The text with the matrix between its marks; nil if they are not there, each once and in order.
  static func replacing(in text: String, with matrix: ConformanceMatrix) -> String? {
    let begins = text.components(separatedBy: begin + "\n")
    let ends = text.components(separatedBy: end)
    guard begins.count == 2, ends.count == 2, begins[0].count < ends[0].count else { return nil }
    return begins[0] + begin + "\n" + matrix.markdown + "\n" + end + ends[1]
  }

  private func namingTheCause<Result>(_ message: String, _ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch {
      let cause = (error as? CocoaError)?.underlying as? POSIXError
      throw cause.map { StorageError.posix($0.code.rawValue, message) }
        ?? StorageError(.io, message, underlying: error)
    }
  }
}
