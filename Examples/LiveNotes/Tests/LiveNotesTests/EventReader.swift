import Foundation
import Synchronization

#if canImport(Darwin)
  import Darwin
#else
  import Glibc
#endif

/// A server-sent event, as it came.
struct ServerEvent: Sendable, Equatable {
  var id = ""
  var name = ""
  var data = ""

  /// The number at the end of the identifier.
  var number: Int? { id.split(separator: "-").last.flatMap { Int($0) } }

  init(_ text: Substring) {
    for line in text.split(separator: "\n") {
      if let value = Self.value(of: "id", in: line) { id = value }
      if let value = Self.value(of: "event", in: line) { name = value }
      if let value = Self.value(of: "data", in: line) { data = value }
    }
  }

  private static func value(of field: String, in line: Substring) -> String? {
    line.hasPrefix(field + ": ") ? String(line.dropFirst(field.count + 2)) : nil
  }
}

/// Reads a stream of events from a socket, on a thread of its own, until it goes away.
final class EventReader: Sendable {
  /// What has come, and the socket. The thread holds this, and not the reader.
  private final class Inbox: Sendable {
    struct State {
      var events: [ServerEvent] = []
      var isOver = false
      var waiting: [CheckedContinuation<Void, Never>] = []
    }

    let state = Mutex(State())
    let socket: Int32

    init(_ socket: Int32) { self.socket = socket }

    deinit { close(socket) }

    func read() {
      var parser = EventParser()
      var buffer = [UInt8](repeating: 0, count: 64 << 10)
      while !parser.isOver {
        let count = recv(socket, &buffer, buffer.count, 0)
        if count < 0, errno == EINTR { continue }
        if count <= 0 { break }
        let events = parser.parse(buffer[..<count])
        notify { $0.events += events }
      }
      notify { $0.isOver = true }
    }

    private func notify(_ change: (inout State) -> Void) {
      let waiting = state.withLock { state in
        change(&state)
        defer { state.waiting = [] }
        return state.waiting
      }
      for continuation in waiting { continuation.resume() }
    }
  }

  private let inbox: Inbox
  /// It would end otherwise.
  private let server: LiveServer

  /// Asks for the stream. Reads nothing if it is to stall.
  init(_ server: LiveServer, _ path: String, headers: [String] = [], isStalled: Bool = false) throws {
    self.server = server
    inbox = Inbox(try connectToLoopback(port: server.port, receiveBuffer: isStalled ? 4_096 : nil))
    let request = (["GET \(path) HTTP/1.1", "Host: 127.0.0.1:\(server.port)"] + headers).joined(
      separator: "\r\n")
    let bytes = Array((request + "\r\n\r\n").utf8)
    guard write(inbox.socket, bytes, bytes.count) == bytes.count else { throw SystemFailure("Asking failed") }
    if !isStalled { Thread.detachNewThread { [inbox] in inbox.read() } }
  }

  deinit { leave() }

  /// Goes away without a word.
  func leave() { shutdown(inbox.socket, Int32(SHUT_RDWR)) }

  struct Ended: Error {}

  /// Waits until what has come is as wanted, and returns it.
  func events(until isThere: ([ServerEvent]) -> Bool) async throws -> [ServerEvent] {
    while true {
      let (events, isOver) = inbox.state.withLock { ($0.events, $0.isOver) }
      if isThere(events) { return events }
      if isOver { throw Ended() }
      await somethingNew(after: events.count)
    }
  }

  /// Waits until the server has ended the stream.
  func end() async {
    while true {
      let (count, isOver) = inbox.state.withLock { ($0.events.count, $0.isOver) }
      if isOver { return }
      await somethingNew(after: count)
    }
  }

  private func somethingNew(after count: Int) async {
    await withCheckedContinuation { continuation in
      let isThere = inbox.state.withLock { state in
        if state.events.count != count || state.isOver { return true }
        state.waiting.append(continuation)
        return false
      }
      if isThere { continuation.resume() }
    }
  }
}

/// Takes events out of a response that comes in chunks (RFC 9112, 7.1).
struct EventParser {
  private var raw: [UInt8] = []
  private var text: [UInt8] = []
  private var isInBody = false
  /// Whether the last chunk has come.
  private(set) var isOver = false

  mutating func parse(_ bytes: ArraySlice<UInt8>) -> [ServerEvent] {
    raw += bytes
    var position = 0
    func line(from start: Int) -> Range<Int>? {
      var index = start
      while index + 1 < raw.count {
        if raw[index] == 13, raw[index + 1] == 10 { return start..<index }
        index += 1
      }
      return nil
    }
    while !isInBody, let range = line(from: position) {
      position = range.upperBound + 2
      if range.isEmpty { isInBody = true }
    }
    while isInBody, let range = line(from: position) {
      guard let size = Int(String(decoding: raw[range], as: UTF8.self), radix: 16) else { break }
      guard range.upperBound + 4 + size <= raw.count else { break }
      if size == 0 {
        isOver = true
        break
      }
      text += raw[(range.upperBound + 2)..<(range.upperBound + 2 + size)]
      position = range.upperBound + 4 + size
    }
    raw.removeFirst(position)
    return takeEvents()
  }

  private mutating func takeEvents() -> [ServerEvent] {
    guard let end = lastEnd else { return [] }
    let complete = String(decoding: text[..<end], as: UTF8.self)
    text.removeFirst(end)
    return complete.split(separator: "\n\n").map(ServerEvent.init).filter { !$0.name.isEmpty }
  }

  /// Behind the last empty line.
  private var lastEnd: Int? {
    var index = text.count - 1
    while index > 0 {
      if text[index] == 10, text[index - 1] == 10 { return index + 1 }
      index -= 1
    }
    return nil
  }
}
