import Foundation
import Synchronization

#if canImport(Darwin)
  import Darwin
#else
  import Glibc
#endif

/// A server-sent event as it was received.
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

/// A stream of events, read on a thread of its own until this is released or the server ends the stream.
final class EventSocket: Sendable {
  /// The socket, shared with the thread: its number cannot be reused before both have released it.
  private final class Descriptor: Sendable {
    let number: Int32
    init(_ number: Int32) { self.number = number }
    deinit { close(number) }
  }

  private let socket: Descriptor
  /// Retained, since the server's process is killed when it is released.
  private let server: LiveServer

  /// Requests the stream.
  ///
  /// - Parameter receive: Called with the events as they arrive, and with nil at the end. If nil, nothing is read.
  init(
    _ server: LiveServer, _ path: String, headers: [String] = [],
    receive: (@Sendable ([ServerEvent]?) -> Void)?
  ) throws {
    self.server = server
    let socket = Descriptor(
      try connectToLoopback(port: server.port, receiveBuffer: receive == nil ? 4_096 : nil))
    self.socket = socket
    let request = (["GET \(path) HTTP/1.1", "Host: 127.0.0.1:\(server.port)"] + headers).joined(
      separator: "\r\n")
    let bytes = Array((request + "\r\n\r\n").utf8)
    guard write(socket.number, bytes, bytes.count) == bytes.count else {
      throw SystemFailure("Asking failed")
    }
    guard let receive else { return }
    Thread.detachNewThread {
      var parser = EventParser()
      var buffer = [UInt8](repeating: 0, count: 64 << 10)
      while !parser.isOver {
        let count = recv(socket.number, &buffer, buffer.count, 0)
        if count < 0, errno == EINTR { continue }
        if count <= 0 { break }
        receive(parser.parse(buffer[..<count]))
      }
      receive(nil)
    }
  }

  deinit { leave() }

  /// Shuts down the connection.
  func leave() { shutdown(socket.number, Int32(SHUT_RDWR)) }
}

/// Stores all events of a stream.
final class EventReader: Sendable {
  private final class Inbox: Sendable {
    struct State {
      var events: [ServerEvent] = []
      var isOver = false
      var waiting: [CheckedContinuation<Void, Never>] = []
    }

    let state = Mutex(State())

    func receive(_ events: [ServerEvent]?) {
      let waiting = state.withLock { state in
        if let events { state.events += events } else { state.isOver = true }
        defer { state.waiting = [] }
        return state.waiting
      }
      for continuation in waiting { continuation.resume() }
    }
  }

  private let inbox = Inbox()
  private let socket: EventSocket

  /// Requests the stream.
  ///
  /// - Parameter isStalled: Whether nothing is read from it.
  init(_ server: LiveServer, _ path: String, headers: [String] = [], isStalled: Bool = false) throws {
    let receive: @Sendable ([ServerEvent]?) -> Void = { [inbox] events in inbox.receive(events) }
    socket = try EventSocket(server, path, headers: headers, receive: isStalled ? nil : receive)
  }

  /// Shuts down the connection.
  func leave() { socket.leave() }

  struct Ended: Error {}

  /// Waits until the events satisfy the condition, and returns them. Throws if the stream ends before.
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

/// Parses the events of a response with the chunked transfer coding (RFC 9112, 7.1).
struct EventParser {
  private var raw: [UInt8] = []
  private var text: [UInt8] = []
  private var isInBody = false
  /// Whether the last chunk has arrived.
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

  /// The position after the last empty line.
  private var lastEnd: Int? {
    var index = text.count - 1
    while index > 0 {
      if text[index] == 10, text[index - 1] == 10 { return index + 1 }
      index -= 1
    }
    return nil
  }
}
