import Foundation

/// A page of the browser. Retains the browser and the server, whose processes are killed when they are released.
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

  /// The value of the expression, or of its promise.
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

  /// Waits until the condition holds in the page. Returns the time of that, in milliseconds since 1970. Throws after a
  /// minute.
  @discardableResult
  func wait(_ condition: String) async throws -> Double {
    let script = """
      new Promise((hold, fail) => {
        const end = Date.now() + 60000;
        // An element that is not there yet is no reason to give up.
        const holds = () => { try { return \(condition); } catch { return false; } };
        (function check() {
          if (holds()) hold(Date.now());
          else if (Date.now() > end) fail(new Error(`Never: ${\(Self.literal(condition))} ${document.body?.innerText}`));
          else setTimeout(check, 2);
        })();
      })
      """
    while true {
      do {
        return try await evaluate(script)
      } catch let failure as Browser.Failure where failure.description.contains("context was destroyed") {
        // The page has been replaced by another one, in which the condition is checked again.
      }
    }
  }

  /// The text as a JavaScript expression.
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

  /// Inserts text into the focused element.
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

  /// Renders the page in this size and color scheme as a PNG file.
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

/// No parameters.
private struct Empty: Encodable {}
