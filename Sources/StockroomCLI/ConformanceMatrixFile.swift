import ConformanceKit
import Foundation
import StockroomCore

/// A text with the matrix of the contract between two marks, each on a line of its own.
struct MatrixFile {
  static let begin = "<!-- conformance -->"
  static let end = "<!-- end of conformance -->"

  let url: URL

  /// Puts the matrix between the marks. What is around them stays, and so does a file that has the matrix already.
  ///
  /// - Throws: `StorageError` with code `unsupported` if the marks are not there, each once and in order; what
  ///   reading and writing the file throws.
  func write(_ matrix: ConformanceMatrix) throws {
    let old = try String(contentsOf: url, encoding: .utf8)
    let new = try Self.replacing(in: old, with: matrix, name: url.path(percentEncoded: false))
    if new != old { try new.write(to: url, atomically: true, encoding: .utf8) }
  }

  /// The text with the matrix between its marks.
  static func replacing(in text: String, with matrix: ConformanceMatrix, name: String) throws -> String {
    let (head, tail) = (text.components(separatedBy: begin + "\n"), text.components(separatedBy: "\n" + end))
    guard head.count == 2, tail.count == 2, head[0].count < tail[0].count else {
      throw StorageError(
        .unsupported, "\(name) needs a line \(begin) and after it a line \(end), for the matrix between them."
      )
    }
    return head[0] + begin + "\n" + matrix.markdown + "\n" + end + tail[1]
  }
}
