import Foundation
import StockroomCore

/// The `stockroom` binary that was built with these tests.
enum CommandLineTool {
  static let url: URL = {
    // The products lie side by side: the binary, and the tests as a bundle (Apple) or as an executable.
    let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL
    let executable = Bundle.main.executableURL ?? URL(filePath: CommandLine.arguments[0])
    return (bundle ?? executable).deletingLastPathComponent().appending(path: "stockroom")
  }()

  struct Output {
    let status: Int32
    let standardOutput: String
    let standardError: String

    var lines: [Substring] { standardOutput.split(separator: "\n") }
    var errorLines: [Substring] { standardError.split(separator: "\n") }
  }

  /// Runs the command with these arguments until it exits, with its output in files.
  static func run(_ arguments: String...) async throws -> Output {
    try await run(arguments)
  }

  /// Runs the command with a list of arguments.
  ///
  /// - Parameters:
  ///   - output: Replaces the file for standard output.
  ///   - executable: Replaces the command.
  static func run(
    _ arguments: [String], output: FileHandle? = nil, executable: URL = url
  ) async throws -> Output {
    try await withTemporaryDirectory { directory in
      let files = try ["out", "err"].map { name in
        let file = directory.appending(path: name)
        try Data().write(to: file)
        return (url: file, handle: try FileHandle(forWritingTo: file))
      }
      let process = Process()
      process.executableURL = executable
      process.arguments = arguments
      process.standardInput = FileHandle.nullDevice
      process.standardOutput = output ?? files[0].handle
      process.standardError = files[1].handle
      try await process.runToEnd()
      let texts = try files.map { String(decoding: try Data(contentsOf: $0.url), as: UTF8.self) }
      return Output(status: process.terminationStatus, standardOutput: texts[0], standardError: texts[1])
    }
  }
}

extension Process {
  /// Runs the process, and suspends until it has ended.
  func runToEnd() async throws {
    try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
      terminationHandler = { _ in continuation.resume() }
      do {
        try run()
      } catch {
        terminationHandler = nil
        continuation.resume(throwing: error)
      }
    }
  }
}

/// Calls `body` with a new directory, which is removed afterwards.
func withTemporaryDirectory<Result>(_ body: (URL) async throws -> Result) async throws -> Result {
  let directory = FileManager.default.temporaryDirectory.appending(
    path: "stockroom-cli-tests-\(UUID().uuidString)", directoryHint: .isDirectory)
  try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(at: directory) }
  return try await body(directory)
}

/// The names of the files in a directory.
func contents(of directory: URL) throws -> [String] {
  try FileManager.default.contentsOfDirectory(atPath: directory.path(percentEncoded: false))
}
