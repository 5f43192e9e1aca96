import Foundation
import Synchronization

/// A headless browser, controlled with the DevTools protocol over a pair of pipes.
final class Browser: Sendable {
  private let process: ChildProcess
  private let input: Int32
  private let profile: TemporaryDirectory

  private struct State {
    var lastID = 0
    var waiting: [Int: CheckedContinuation<Data, any Error>] = [:]
    var isOver = false
  }
  private let state = Mutex(State())

  struct Failure: Error, CustomStringConvertible {
    let description: String
  }

  static let program = ["/usr/bin/chromium", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"]
    .first { FileManager.default.isExecutableFile(atPath: $0) }
  static var isInstalled: Bool { program != nil }

  init() throws {
    guard let program = Self.program else { throw Failure(description: "There is no browser.") }
    profile = try TemporaryDirectory()
    let (commands, answers) = (try Pipe(), try Pipe())
    let silent = open("/dev/null", O_RDWR | O_CLOEXEC)
    defer { close(silent) }
    process = try ChildProcess(
      program,
      [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
        "--disable-renderer-backgrounding", "--disable-extensions", "--disable-background-networking",
        "--user-data-dir=\(profile.path)", "--remote-debugging-pipe", "about:blank",
      ],
      descriptors: [0: silent, 1: silent, 2: silent, 3: commands.reading, 4: answers.writing])
    close(commands.reading)
    close(answers.writing)
    input = commands.writing
    Thread.detachNewThread { [weak self, answers] in
      var rest: [UInt8] = []
      var buffer = [UInt8](repeating: 0, count: 64 << 10)
      while true {
        let count = read(answers.reading, &buffer, buffer.count)
        if count < 0, errno == EINTR { continue }
        if count <= 0 { break }
        rest += buffer[..<count]
        while let end = rest.firstIndex(of: 0) {
          self?.received(Data(rest[..<end]))
          rest.removeFirst(end + 1)
        }
      }
      close(answers.reading)
      self?.ended()
    }
  }

  deinit {
    process.end(by: SIGKILL)
    close(input)
  }

  private struct Envelope: Decodable {
    struct Problem: Decodable { let message: String }
    let id: Int?
    let error: Problem?
  }

  private func received(_ data: Data) {
    guard let envelope = try? JSONDecoder().decode(Envelope.self, from: data), let id = envelope.id else {
      return
    }
    let continuation = state.withLock { $0.waiting.removeValue(forKey: id) }
    if let error = envelope.error {
      continuation?.resume(throwing: Failure(description: error.message))
    } else {
      continuation?.resume(returning: data)
    }
  }

  private func ended() {
    let waiting = state.withLock { state in
      state.isOver = true
      defer { state.waiting = [:] }
      return state.waiting
    }
    for continuation in waiting.values {
      continuation.resume(throwing: Failure(description: "The browser ended."))
    }
  }

  private struct Command<Parameters: Encodable>: Encodable {
    let id: Int
    let method: String
    let params: Parameters
    let sessionId: String?
  }

  private struct Answer<Result: Decodable>: Decodable { let result: Result }

  static func result<Result: Decodable>(of answer: Data, as type: Result.Type = Result.self) throws -> Result
  {
    try JSONDecoder().decode(Answer<Result>.self, from: answer).result
  }

  /// Calls a method of the protocol. Returns the encoded response.
  @discardableResult
  func call(_ method: String, _ parameters: some Encodable, in session: String? = nil) async throws -> Data {
    let id = state.withLock { state in
      state.lastID += 1
      return state.lastID
    }
    let command = try JSONEncoder().encode(
      Command(id: id, method: method, params: parameters, sessionId: session))
    return try await withCheckedThrowingContinuation { continuation in
      let isOver = state.withLock { state in
        if !state.isOver { state.waiting[id] = continuation }
        return state.isOver
      }
      if isOver { return continuation.resume(throwing: Failure(description: "The browser has ended.")) }
      let bytes = Array(command) + [0]
      var written = 0
      while written < bytes.count {
        let count = bytes[written...].withUnsafeBytes { write(input, $0.baseAddress, $0.count) }
        if count < 0, errno == EINTR { continue }
        if count <= 0 { break }
        written += count
      }
    }
  }

  /// Opens the server's page in a new window.
  func openPage(of server: LiveServer) async throws -> Page {
    struct Target: Encodable {
      let url: String
      let newWindow = true
      let width = 1_200
      let height = 800
    }
    struct Made: Decodable { let targetId: String }
    struct Attach: Encodable {
      let targetId: String
      let flatten = true
    }
    struct Attached: Decodable { let sessionId: String }
    let made = try Self.result(
      of: try await call("Target.createTarget", Target(url: server.url)), as: Made.self)
    let attached = try Self.result(
      of: try await call("Target.attachToTarget", Attach(targetId: made.targetId)), as: Attached.self)
    return Page(browser: self, server: server, session: attached.sessionId)
  }
}
