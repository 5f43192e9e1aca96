import Foundation
import StockroomCore
import StockroomKitSupport

/// The `stockroom` binary that was built with these tests.
enum CommandLineTool {
  static let url: URL = {
    // The binary is in the same directory as the tests, which are a bundle (Apple) or an executable.
    let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL
    let executable = Bundle.main.executableURL ?? URL(filePath: CommandLine.arguments[0])
    return (bundle ?? executable).deletingLastPathComponent().appending(path: "stockroom")
  }()

  struct Output {
    let status: Int32
    let bytes: Data
    let standardError: String

    var standardOutput: String { String(decoding: bytes, as: UTF8.self) }

    var lines: [Substring] { standardOutput.split(separator: "\n") }
    var errorLines: [Substring] { standardError.split(separator: "\n") }
  }

  /// Runs the command with these arguments until it exits.
  static func run(_ arguments: String...) async throws -> Output {
    try await run(arguments)
  }

  /// Runs the command with a list of arguments.
  ///
  /// - Parameters:
  ///   - script: A shell script in which the command is `"$@"`.
  ///   - executable: The program to run instead of `stockroom`.
  static func run(
    _ arguments: [String], by script: String? = nil, executable: URL = url
  ) async throws -> Output {
    let shell = script.map { ["/bin/sh", "-c", $0, "sh"] } ?? []
    let output = try await ProgramOutput(of: shell + [executable.path] + arguments)
    guard case .exited(let status) = output.ending else {
      throw StorageError(.io, "The command \(output.explanation)")
    }
    return Output(status: status, bytes: output.output, standardError: output.errorText)
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
