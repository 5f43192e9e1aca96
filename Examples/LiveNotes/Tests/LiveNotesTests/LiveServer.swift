import Foundation

/// The server under test, in a process of its own.
final class LiveServer: Sendable {
  let process: ChildProcess
  let port: Int
  var url: String { "http://127.0.0.1:\(port)" }

  struct NotStarted: Error, CustomStringConvertible {
    let description: String
  }

  /// The directory of the built programs, which also contains the tests.
  private static var products: URL {
    var url = URL(filePath: CommandLine.arguments[0]).resolvingSymlinksInPath()
    while url.pathComponents.count > 1,
      !FileManager.default.isExecutableFile(atPath: url.appending(path: "LiveNotes").path())
    {
      url.deleteLastPathComponent()
    }
    return url
  }

  /// Starts the server, and waits until it listens.
  static func start(_ arguments: [String], port: Int = 0, isPinned: Bool = false) async throws -> LiveServer {
    try await onDedicatedThread { try LiveServer(arguments, port, isPinned) }
  }

  private init(_ arguments: [String], _ port: Int, _ isPinned: Bool) throws {
    let output = try Pipe()
    let program = Self.products.appending(path: "LiveNotes").path()
    let command = [program] + arguments + ["--port", "\(port)"]
    process =
      isPinned
      ? try ChildProcess("/usr/bin/taskset", ["-c", "0"] + command, descriptors: [1: output.writing])
      : try ChildProcess(program, Array(command.dropFirst()), descriptors: [1: output.writing])
    close(output.writing)
    let handle = FileHandle(fileDescriptor: output.reading, closeOnDealloc: true)
    var line = ""
    while !line.hasSuffix("\n") {
      let data = handle.availableData
      guard !data.isEmpty else {
        throw NotStarted(description: "It ended by \(process.wait()), and said: \(line)")
      }
      line += String(decoding: data, as: UTF8.self)
    }
    guard let match = line.firstMatch(of: /:([0-9]+)\/\n/), let port = Int(match.1) else {
      throw NotStarted(description: "It said: \(line)")
    }
    self.port = port
  }

  @discardableResult
  func ask(
    _ method: String, _ path: String, _ body: Data? = nil, headers: [String: String] = [:]
  ) async throws -> HTTPExchange.Answer {
    let exchange = HTTPExchange(method: method, path: path, body: body, headers: headers)
    return try await onDedicatedThread { [port] in try exchange.perform(port: port) }
  }

  @discardableResult
  func ask(_ method: String, _ path: String, json: some Encodable) async throws -> HTTPExchange.Answer {
    try await ask(method, path, try JSONEncoder().encode(json))
  }

  /// A note as a client decodes it.
  struct Note: Codable, Equatable, Sendable {
    let id: UUID
    var text: String
    var tags: [String]
    var favourite: Bool
    var done: Bool
    var created: Int
  }

  struct Removal: Decodable {
    let undo: UUID
    let removed: Int
  }

  struct Health: Decodable {
    let status: String
    let notes: Int
    let subscribers: Int
    let cutOff: Int
  }

  func add(_ text: String, tags: [String] = [], id: UUID? = nil) async throws -> Note {
    struct Draft: Encodable {
      let id: UUID?
      let text: String
      let tags: [String]
    }
    return try await ask("POST", "/notes", json: Draft(id: id, text: text, tags: tags)).decoded()
  }

  func notes() async throws -> [Note] {
    struct List: Decodable { let notes: [Note] }
    return try await ask("GET", "/notes").decoded(List.self).notes
  }

  func health() async throws -> Health { try await ask("GET", "/health").decoded() }
}
