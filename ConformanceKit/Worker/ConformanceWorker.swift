import Foundation
import StockroomCore
import StockroomKitSupport

/// An executable that opens the engine in a process of its own, to be killed, cut off from power, or sent into corrupted
/// files, where a trap is an answer and not the end of the tests.
///
/// It is two lines long, beside its imports, in an executable target, here called `my-engine-worker`:
///
/// ```swift
/// import ConformanceKit
/// import MyEngine
///
/// // Does what the checks ask for, with the engine that they check.
/// try await ConformanceWorker.serve { try MyEngine(directory: $0) }
/// ```
///
/// In the manifest the test target depends on it, so that it is there when the tests run:
///
/// ```swift
/// .executableTarget(name: "my-engine-worker", dependencies: ["MyEngine", .product(name: "ConformanceKit", package: "stockroom")]),
/// .testTarget(name: "MyEngineTests", dependencies: ["MyEngine", "my-engine-worker", …]),
/// ```
///
/// The suite names it:
///
/// ```swift
/// ConformanceSuite("MyEngine", capabilities: .persistent, worker: ConformanceWorker(product: "my-engine-worker")) {
///   try MyEngine(directory: $0)
/// }
/// ```
public struct ConformanceWorker: Sendable, Hashable {
  /// The executable.
  public let executable: URL
  /// The arguments that it is started with.
  public let arguments: [String]

  /// An executable that calls ``serve(makeEngine:)``.
  public init(executable: URL, arguments: [String] = []) {
    self.executable = executable
    self.arguments = arguments
  }

  /// An executable of the package that the tests were built with: it lies beside them.
  ///
  /// If there is none of this name, the checks that need it fail and say where it was looked for.
  public init(product: String, arguments: [String] = []) {
    // The tests are a bundle (Apple) or an executable.
    let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL
    let tests = bundle ?? Bundle.main.executableURL ?? URL(filePath: CommandLine.arguments[0])
    self.init(executable: tests.deletingLastPathComponent().appending(path: product), arguments: arguments)
  }

  /// Does what the checks of the parent process ask for, until that process closes standard input or ends. Then this
  /// process ends, whatever it is doing.
  ///
  /// Requests come on standard input, and answers go to what was standard output. What the engine, or anything else,
  /// prints goes to standard error from now on. Call it before anything is printed.
  ///
  /// - Parameter makeEngine: Opens the engine, as in ``ConformanceSuite``.
  /// - Throws: `StorageError` if nobody can be answered.
  @concurrent public static func serve(
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) async throws {
    let answers = AnswerChannel.shared
    try answers.send(greeting)
    for await line in AnswerChannel.requests() {
      do {
        try await WorkerRequest(line: line).task.answer(makeEngine: makeEngine)
        try answers.send(WorkerReply<String>.done.line)
      } catch let lost as ParentDisconnected {
        throw lost.error
      } catch let skip as Skip {
        try answers.send(WorkerReply<String>.skipped(reason: skip.reason).line)
      } catch {
        try answers.send(WorkerReply<String>.failed(WorkerError(error)).line)
      }
    }
  }

  /// The first line that a worker writes. The number is that of what requests and answers look like.
  static let greeting = "conformance worker 2"
}
