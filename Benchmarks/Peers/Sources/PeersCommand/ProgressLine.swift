import Foundation

/// A line on standard error that is overwritten. Shows nothing if standard error is not a terminal.
struct ProgressLine: Sendable {
  private let isShown = isatty(STDERR_FILENO) == 1

  func show(_ text: String) {
    if isShown { FileHandle.standardError.write(Data("\r\u{1B}[K\(text.prefix(100))".utf8)) }
  }

  func clear() { show("") }
}
