import Foundation
import StockroomCore
import StockroomKitSupport

/// An executable that opens the engine in a separate process. Checks kill that process, record its system calls to simulate
/// power cuts, or make it open corrupted files, where a trap ends only this process and not the tests.
///
/// The executable consists of imports and a single call, in an executable target that is called `my-engine-worker`
/// here:
///
/// ```swift
/// import ConformanceKit
/// import MyEngine
///
/// // Does what the checks ask for, with the engine that they check.
/// try await ConformanceWorker.serve { try MyEngine(directory: $0) }
/// ```
///
/// In the manifest, the test target depends on it, so that it is built before the tests run:
///
/// ```swift
/// .executableTarget(name: "my-engine-worker", dependencies: ["MyEngine", .product(name: "ConformanceKit", package: "stockroom")]),
/// .testTarget(name: "MyEngineTests", dependencies: ["MyEngine", "my-engine-worker", …]),
/// ```
///
/// The suite refers to it:
///
/// ```swift
/// ConformanceSuite("MyEngine", capabilities: .persistent, worker: ConformanceWorker(product: "my-engine-worker")) {
///   try MyEngine(directory: $0)
/// }
/// ```
public struct ConformanceWorker: Sendable, Hashable {
  /// The executable.
  public let executable: URL
  /// The arguments of the executable.
  public let arguments: [String]

  /// An executable that calls ``serve(makeEngine:)``.
  public init(executable: URL, arguments: [String] = []) {
    self.executable = executable
    self.arguments = arguments
  }

  /// An executable product of the package of the tests, which is built into the same directory as the tests.
  ///
  /// If there is no executable of this name, the checks that need it fail with the path that they tried.
  public init(product: String, arguments: [String] = []) {
    // The tests are a bundle (Apple) or an executable.
    let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL
    let tests = bundle ?? Bundle.main.executableURL ?? URL(filePath: CommandLine.arguments[0])
    self.init(executable: tests.deletingLastPathComponent().appending(path: product), arguments: arguments)
  }

  /// Performs the tasks that the checks of the parent process request, until that process closes standard
  /// input or ends. Then this process exits, even in the middle of a task.
  ///
  /// Requests arrive on standard input, and answers go to the original standard output. From now on, output
  /// of the engine or of other code goes to standard error. Call this method before anything is printed.
  ///
  /// - Parameter makeEngine: Opens the engine, as in ``ConformanceSuite``.
  /// - Throws: `StorageError` if answers cannot be sent.
  @concurrent public static func serve(
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) async throws {
    let answers = AnswerChannel.shared
    try answers.send(greeting)
    for await line in AnswerChannel.requests() {
      do {
        try await WorkerRequest(line: line).perform { try await $0.answer(makeEngine: makeEngine) }
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

  /// The first line that a worker writes. The number is the version of the format of requests and answers.
  static let greeting = "conformance worker 3"
}
