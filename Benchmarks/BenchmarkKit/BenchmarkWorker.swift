#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// A program that opens an engine in another process and writes to it there, for the workloads that measure how
/// soon a change is visible in other processes.
///
/// Apart from its imports, the program has one statement:
///
/// ```swift
/// import BenchmarkKit
/// import MyEngine
///
/// // Executes the requests of the workloads with the engine that they measure.
/// try await BenchmarkWorker.serve { try MyEngine(directory: $0) }
/// ```
///
/// Pass it to the subject:
///
/// ```swift
/// BenchmarkSubject("mine", worker: BenchmarkWorker(executable: URL(filePath: "…/my-engine-worker"))) {
///   try MyEngine(directory: $0)
/// }
/// ```
public struct BenchmarkWorker: Sendable, Hashable {
  /// The executable.
  public let executable: URL
  /// The arguments of the executable.
  public let arguments: [String]

  /// Creates a worker from an executable that calls ``serve(makeEngine:)``.
  public init(executable: URL, arguments: [String] = []) {
    self.executable = executable
    self.arguments = arguments
  }

  /// Executes the requests of the benchmark in the parent process, until that process closes standard input
  /// or ends. Then this process exits immediately, without cleanup.
  ///
  /// Requests arrive on standard input, and answers are written to the original standard output. From this call on,
  /// anything that the engine or other code prints goes to standard error. Print nothing before the call.
  ///
  /// - Parameter makeEngine: Opens the engine, as in ``BenchmarkSubject``.
  /// - Throws: `StorageError` with code `io` if no answer can be sent.
  @concurrent public static func serve(
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) async throws {
    let answers = AnswerChannel.shared
    var engine: any StorageEngine = ClosedEngine()
    for await line in AnswerChannel.requests() {
      var answer = Answer()
      do {
        switch try JSONDecoder().decode(Request.self, from: Data(line.utf8)) {
        case .open(let directory): engine = try await makeEngine(directory)
        case .write(let key, let data): try await engine.write(data, key: CacheKey(verbatim: key))
        case .close: try await engine.close()
        }
      } catch {
        answer.failure = "\(error)"
      }
      do {
        try answers.send(String(decoding: JSONEncoder().encode(answer), as: UTF8.self))
      } catch let lost as ParentDisconnected {
        throw lost.error
      }
    }
  }

  enum Request: Codable {
    case open(URL)
    case write(key: String, data: Data)
    case close
  }

  struct Answer: Codable {
    var failure: String?
  }
}

/// A running worker with an open engine.
final class BenchmarkWorkerProcess: Sendable {
  private let process: LineProcess

  /// Starts the program and makes it open the engine in a directory.
  init(_ worker: BenchmarkWorker, directory: URL) async throws {
    process = try LineProcess([worker.executable.path(percentEncoded: false)] + worker.arguments)
    try request(.open(directory))
    try await waitForAnswer()
  }

  /// Requests that the worker write a value, without waiting for the answer.
  func startWriting(_ data: Data, key: CacheKey) throws { try request(.write(key: key.value, data: data)) }

  /// Waits until the worker has completed the request.
  func waitForAnswer() async throws {
    guard let line = await process.nextLine() else {
      try Task.checkCancellation()
      let ending = await process.waitUntilEnd()
      throw BenchmarkError("the worker process \(ending): \(process.stderrTail)")
    }
    let answer: BenchmarkWorker.Answer
    do {
      answer = try JSONDecoder().decode(BenchmarkWorker.Answer.self, from: line)
    } catch {
      let (command, text) = (
        process.command.joined(separator: " "), String(decoding: line.prefix(80), as: UTF8.self)
      )
      throw BenchmarkError(
        "\(command) wrote \(text.debugDescription), so it does not call BenchmarkWorker.serve(makeEngine:)",
        underlying: error)
    }
    if let failure = answer.failure { throw BenchmarkError("in the worker process: \(failure)") }
  }

  /// Closes the engine in the worker, and waits until the process has ended.
  func end() async throws {
    try request(.close)
    try await waitForAnswer()
    process.closeInput()
    await process.waitUntilEnd()
  }

  private func request(_ request: BenchmarkWorker.Request) throws {
    process.send(String(decoding: try JSONEncoder().encode(request), as: UTF8.self))
  }
}
