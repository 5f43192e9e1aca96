import Foundation
import StockroomCore

/// An executable that opens the engine in a process of its own, to be killed, cut off from power, or sent into damaged
/// files, where a trap is an answer and not the end of the tests.
///
/// It is two lines long, beside its imports, in an executable target:
///
/// ```swift
/// import ConformanceKit
/// import MyEngine
///
/// try await ConformanceChild.serve { try MyEngine(directory: $0) }
/// ```
///
/// The suite is told where the executable is:
///
/// ```swift
/// let child = ConformanceChild(executable: products.appending(path: "my-engine-child"))
/// ConformanceSuite("MyEngine", capabilities: [.persistent], child: child) { try MyEngine(directory: $0) }
/// ```
public struct ConformanceChild: Sendable, Hashable {
  /// The executable.
  public let executable: URL
  /// The arguments that it is started with.
  public let arguments: [String]

  /// An executable that calls ``serve(makeEngine:)``.
  public init(executable: URL, arguments: [String] = []) {
    self.executable = executable
    self.arguments = arguments
  }

  /// Does what the checks of the parent process ask for, until that process closes standard input or ends.
  ///
  /// Requests come on standard input and answers go to standard output, a line each, so nothing else may read or
  /// write there.
  ///
  /// - Parameter makeEngine: Opens the engine, as in ``ConformanceSuite``.
  /// - Throws: `StorageError` with code `unsupported` if a request cannot be understood.
  @concurrent public static func serve(
    makeEngine: @escaping @Sendable (_ directory: URL) async throws -> any StorageEngine
  ) async throws {
    for await line in requests() {
      let request = try ChildRequest(line: line)
      do {
        try await request.task.answer(makeEngine: makeEngine)
        try writeLine(#"{"done":{}}"#)
      } catch let failure as LostParent {
        throw failure.error
      } catch {
        try writeLine(ChildReply<String>.failed(ChildError(error)).line)
      }
    }
  }

  /// The lines that come from the parent. At the end of them the process ends, whatever it is doing.
  private static func requests() -> AsyncStream<String> {
    let (stream, continuation) = AsyncStream<String>.makeStream()
    Thread.detachNewThread {
      while let line = readLine() { continuation.yield(line) }
      exit(0)
    }
    return stream
  }
}
