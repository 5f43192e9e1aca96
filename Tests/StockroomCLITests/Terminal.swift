import Foundation
import StockroomKitSupport
import Testing

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A pseudo-terminal.
struct Terminal {
  let controller: FileHandle
  private let terminal: FileHandle
  private let path: String

  init() throws {
    var descriptors: (controller: Int32, terminal: Int32) = (-1, -1)
    try #require(openpty(&descriptors.controller, &descriptors.terminal, nil, nil, nil) == 0)
    controller = FileHandle(fileDescriptor: descriptors.controller, closeOnDealloc: true)
    terminal = FileHandle(fileDescriptor: descriptors.terminal, closeOnDealloc: true)
    // Not `ttyname`, whose result the next call overwrites: tests run concurrently.
    var name = [CChar](repeating: 0, count: 128)
    try #require(ttyname_r(descriptors.terminal, &name, name.count) == 0)
    path = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// Starts the command with the terminal as standard error, and as standard input if `isInput` is true.
  func start(
    _ arguments: [String], output: String = "/dev/null", isInput: Bool = false
  ) throws -> LineProcess {
    let script = #"terminal=$1 output=$2; shift 2; exec "$@" >"$output" 2>"$terminal""#
    return try LineProcess(
      ["/bin/sh", "-c", script + (isInput ? #" <"$terminal""# : ""), "sh", path, output]
        + [CommandLineTool.url.path] + arguments)
  }

  /// Waits until the output of the command satisfies the condition, and fails if the command ends before.
  ///
  /// - Returns: The output since the last call.
  @discardableResult
  func show(_ process: LineProcess, until isEnough: (String) -> Bool) async throws -> String {
    var seen = ""
    while !isEnough(seen) {
      let hasEnded = kill(process.identifier, 0) != 0
      // Output may arrive after the end of the process.
      let text = newText(waitingFor: hasEnded ? 5_000 : 20)
      try #require(!hasEnded || !text.isEmpty, "\(seen.debugDescription)")
      seen += text
      await Task.yield()
    }
    return seen
  }

  /// Some of the output since the last call; empty if none arrives within this time.
  private func newText(waitingFor milliseconds: Int32) -> String {
    var state = pollfd(fd: controller.fileDescriptor, events: Int16(POLLIN), revents: 0)
    guard poll(&state, 1, milliseconds) > 0 else { return "" }
    return String(decoding: controller.availableData, as: UTF8.self)
  }
}
