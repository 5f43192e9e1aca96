import Foundation
import Synchronization

/// A real browser without a window, driven over its DevTools protocol through a pair of pipes.
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

  /// Calls a method of the protocol. Returns the answer as it came.
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

  /// Opens a page in a window of its own.
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

/// No parameters.
private struct Empty: Encodable {}

/// A page of the browser, and the server that it comes from, which ends with it.
struct Page: Sendable {
  let browser: Browser
  let server: LiveServer
  let session: String

  private struct Evaluate: Encodable {
    let expression: String
    let awaitPromise = true
    let returnByValue = true
    let userGesture = true
  }

  private struct Evaluated<Value: Decodable>: Decodable {
    struct Outcome: Decodable { let value: Value? }
    let result: Outcome
  }

  private struct Thrown: Decodable {
    struct Problem: Decodable {
      struct Details: Decodable { let description: String? }
      let text: String
      let exception: Details?
    }
    let exceptionDetails: Problem?
  }

  /// What the expression comes to, or its promise.
  func evaluate<Value: Decodable>(_ script: String, as type: Value.Type = Value.self) async throws -> Value {
    let data = try await browser.call("Runtime.evaluate", Evaluate(expression: script), in: session)
    if let problem = try Browser.result(of: data, as: Thrown.self).exceptionDetails {
      throw Browser.Failure(description: problem.exception?.description ?? problem.text)
    }
    guard let value = try Browser.result(of: data, as: Evaluated<Value>.self).result.value else {
      throw Browser.Failure(description: "No value: \(script)")
    }
    return value
  }

  /// Waits until the condition holds in the page. Returns when that was, in milliseconds since 1970.
  @discardableResult
  func wait(_ condition: String) async throws -> Double {
    let script = """
      new Promise((hold, fail) => {
        const end = Date.now() + 60000;
        // An element that is not there yet is no reason to give up.
        const holds = () => { try { return \(condition); } catch { return false; } };
        (function look() {
          if (holds()) hold(Date.now());
          else if (Date.now() > end) fail(new Error(`Never: ${\(Self.literal(condition))} ${document.body?.innerText}`));
          else setTimeout(look, 2);
        })();
      })
      """
    while true {
      do {
        return try await evaluate(script)
      } catch let failure as Browser.Failure where failure.description.contains("context was destroyed") {
        // The page that was there before is gone, and another one is loaded.
      }
    }
  }

  /// The text as an expression.
  static func literal(_ text: String) -> String {
    let array = (try? JSONEncoder().encode([text])).map { String(decoding: $0, as: UTF8.self) } ?? "[\"\"]"
    return array + "[0]"
  }

  private struct Key: Encodable {
    let type: String
    let key: String
    let code: String
    let text: String?
    let windowsVirtualKeyCode: Int
  }

  /// Presses keys, one after the other: characters, or names such as `Enter`.
  func press(_ keys: String...) async throws {
    let codes = [
      "Enter": 13, "Escape": 27, "Delete": 46, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37,
      "ArrowRight": 39,
      "Tab": 9, "Home": 36, "End": 35, " ": 32,
    ]
    for key in keys {
      let text = key == "Enter" ? "\r" : key.count == 1 ? key : nil
      let code = codes[key] ?? Int(key.uppercased().unicodeScalars.first?.value ?? 0)
      let name = key.count == 1 && key != " " ? "Key\(key.uppercased())" : key == " " ? "Space" : key
      for type in ["keyDown", "keyUp"] {
        try await browser.call(
          "Input.dispatchKeyEvent",
          Key(
            type: type, key: key, code: name, text: type == "keyDown" ? text : nil,
            windowsVirtualKeyCode: code),
          in: session)
      }
    }
  }

  /// Writes where the focus is.
  func type(_ text: String) async throws {
    try await browser.call("Input.insertText", ["text": text], in: session)
  }

  func reload() async throws {
    try await browser.call("Page.reload", Empty(), in: session)
  }

  func setOffline(_ isOffline: Bool) async throws {
    struct Conditions: Encodable {
      let offline: Bool
      let latency = 0
      let downloadThroughput = -1
      let uploadThroughput = -1
    }
    try await browser.call("Network.enable", Empty(), in: session)
    try await browser.call(
      "Network.emulateNetworkConditions", Conditions(offline: isOffline), in: session)
  }

  /// Draws the page in this size and color scheme, as a PNG file.
  func screenshot(width: Int, height: Int, scheme: String) async throws -> Data {
    struct Size: Encodable {
      let width: Int
      let height: Int
      let deviceScaleFactor = 1
      let mobile = false
    }
    struct Media: Encodable {
      struct Feature: Encodable {
        let name = "prefers-color-scheme"
        let value: String
      }
      let features: [Feature]
    }
    struct Image: Decodable { let data: String }
    try await browser.call(
      "Emulation.setDeviceMetricsOverride", Size(width: width, height: height), in: session)
    try await browser.call(
      "Emulation.setEmulatedMedia", Media(features: [.init(value: scheme)]), in: session)
    let _: Double = try await evaluate(
      "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
    let answer = try await browser.call("Page.captureScreenshot", ["format": "png"], in: session)
    let image = try Browser.result(of: answer, as: Image.self)
    return Data(base64Encoded: image.data) ?? Data()
  }
}
