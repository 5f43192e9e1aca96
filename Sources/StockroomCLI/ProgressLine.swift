#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A line of progress on standard error, which is overwritten.
///
/// Shows nothing if standard error is not a terminal.
struct ProgressLine: Sendable {
  private let isShown = isatty(STDERR_FILENO) == 1

  /// Replaces the line.
  func show(_ text: String) {
    guard isShown else { return }
    writeToStandardError("\r\u{1B}[K" + Self.beginning(of: text, columns: Self.width - 1))
  }

  /// The longest prefix of the text that certainly fits into the columns. A text that continues in the next line could
  /// not be removed.
  static func beginning(of text: String, columns: Int) -> Substring {
    var left = columns
    return text.prefix { character in
      // Which characters are two columns wide depends on the terminal. Characters below U+1100 are not.
      left -= character.unicodeScalars.reduce(0) { $0 + ($1.value < 0x1100 ? 1 : 2) }
      return left >= 0
    }
  }

  /// Removes the line.
  func clear() { show("") }

  /// Calls `body`, and calls `draw` every second until it has returned.
  static func redrawing<Result>(
    _ draw: @escaping @Sendable () -> Void, during body: () async throws -> Result
  ) async throws -> Result {
    let ticker = Task { @concurrent in
      while (try? await Task.sleep(for: .seconds(1))) != nil { draw() }
    }
    defer { ticker.cancel() }
    return try await body()
  }

  private static var width: Int {
    var size = winsize()
    guard ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
    return Int(size.ws_col)
  }
}
