import Foundation
import StockroomCore

@testable import ConformanceKit

/// A small server of entries, for engines in the tests of the kit. Each request and each answer is a line of JSON.
final class WireServer: Sendable {
  struct Request: Codable {
    enum Kind: String, Codable {
      case change, read, readAll
      /// Requests whether a change has happened, and prevents it if not.
      case settle
      /// Requests all later changes in a place.
      case listen
    }

    var kind: Kind
    /// The number of a change.
    var change: UUID?
    var operations: [Operation] = []
    /// The key to read, or the prefix of the keys to read or remove.
    var key = ""
    /// Whether only the keys of the entries matter.
    var isForKeys = false
    var password = WireServer.password
  }

  struct Operation: Codable {
    /// Nil stands for every key with the prefix of the request.
    var key: String?
    /// Nil removes.
    var data: Data?
  }

  struct Entry: Codable {
    var key: String
    var data: Data
    var createdAt: Date
    var updatedAt: Date
  }

  struct Answer: Codable {
    var entries: [Entry] = []
    var hasHappened = false
    var refusal: String?
    /// For a listener: the keys that a change has written or removed.
    var changed: [String] = []
    /// For a listener: whether any key may have changed.
    var isEverythingChanged = false
    /// For a listener: the number of changes of this server in the place.
    var changeCount = 0
  }

  static let password = "open sesame"

  fileprivate struct Contents {
    var entries: [String: Entry] = [:]
    var done: Set<UUID> = []
    var forbidden: Set<UUID> = []
  }

  private struct State {
    var contents = Contents()
    /// The contents of a replica that could take over.
    var replica = Contents()
    /// The requests that the replica has not received yet.
    var unreplicated: [Request] = []
    var isAlive = false
    var connections: Set<Int32> = []
    /// The places whose changes connections receive.
    var listeners: [Int32: String] = [:]
    /// The number of changes in each place. Another server starts at zero.
    var changeCounts: [String: Int] = [:]

    /// Sends a change to the listeners. The message is too short to block.
    func announce(_ request: Request) {
      var answer = Answer(changed: request.operations.compactMap(\.key))
      answer.isEverythingChanged = request.operations.contains { $0.key == nil }
      answer.changeCount = changeCounts[request.key, default: 0]
      guard let data = try? JSONEncoder().encode(answer) else { return }
      for (listener, place) in listeners where place == request.key {
        // A listener that has disconnected is about to be removed.
        _ = NetworkSocket.send(ArraySlice(data + Data("\n".utf8)), to: listener)
      }
    }
  }

  let address: ConformanceServer.Address
  private let listener: Int32
  private let state = MutexProtected(State())
  private let lag: Int

  /// - Parameter lag: How many changes the replica is behind.
  init(lag: Int = 0) throws {
    self.lag = lag
    let (listener, port) = try NetworkSocket.listen()
    (self.listener, address) = (listener, .loopback(port: port))
    Thread.detachNewThread { [weak self] in
      while let client = NetworkSocket.accept(listener) {
        if let self { self.admit(client) } else { NetworkSocket.close(client) }
      }
      NetworkSocket.close(listener)
    }
  }

  // Wakes the accepting thread, which closes the socket.
  deinit { NetworkSocket.shutDown(listener) }

  private func admit(_ client: Int32) {
    let isAlive = state.withLock { state in
      if state.isAlive { state.connections.insert(client) }
      return state.isAlive
    }
    guard isAlive else { return NetworkSocket.close(client) }
    Thread.detachNewThread { [self] in
      serve(client)
      state.withLock { state in
        state.connections.remove(client)
        state.listeners[client] = nil
      }
      NetworkSocket.close(client)
    }
  }

  func start() { state.withLock { $0.isAlive = true } }

  func kill() {
    // While locked, because the number of a closed socket may be reused.
    state.withLock { state in
      state.isAlive = false
      for connection in state.connections { NetworkSocket.shutDown(connection) }
    }
  }

  /// Replaces the contents with those of the replica.
  func failOver() -> ConformanceServer.Address {
    kill()
    state.withLock {
      $0.contents = $0.replica
      $0.unreplicated = []
      $0.changeCounts = [:]
    }
    start()
    return address
  }

  private func serve(_ client: Int32) {
    var reader = LineReader(socket: client)
    while let line = reader.next(until: nil),
      let request = try? JSONDecoder().decode(Request.self, from: line)
    {
      let answer = state.withLock { state -> Answer? in
        guard state.isAlive else { return nil }
        if request.kind == .change || request.kind == .settle {
          state.unreplicated.append(request)
          if state.unreplicated.count > lag { _ = state.replica.answer(state.unreplicated.removeFirst()) }
        }
        if request.kind == .listen { state.listeners[client] = request.key }
        var answer = state.contents.answer(request)
        if request.kind == .change, answer.hasHappened {
          state.changeCounts[request.key, default: 0] += 1
          state.announce(request)
        }
        answer.changeCount = state.changeCounts[request.key, default: 0]
        return answer
      }
      guard let answer, let data = try? JSONEncoder().encode(answer),
        NetworkSocket.send(ArraySlice(data + Data("\n".utf8)), to: client)
      else { return }
    }
  }
}

extension WireServer.Contents {
  fileprivate mutating func answer(_ request: WireServer.Request) -> WireServer.Answer {
    guard request.password == WireServer.password else { return .init(refusal: "That is not the password.") }
    switch request.kind {
    case .listen: return .init()
    case .read: return .init(entries: [entries[request.key]].compactMap { $0 })
    case .readAll: return .init(entries: entries.values.filter { $0.key.hasPrefix(request.key) })
    case .settle:
      guard let change = request.change else { return .init() }
      if !done.contains(change) { forbidden.insert(change) }
      return .init(hasHappened: done.contains(change))
    case .change:
      if let change = request.change {
        guard !forbidden.contains(change) else { return .init(refusal: "The change has been given up.") }
        done.insert(change)
      }
      for operation in request.operations { perform(operation, in: request.key) }
      return .init(hasHappened: true)
    }
  }

  private mutating func perform(_ operation: WireServer.Operation, in place: String) {
    guard let key = operation.key else {
      entries = entries.filter { !$0.key.hasPrefix(place) }
      return
    }
    guard let data = operation.data else {
      entries[key] = nil
      return
    }
    let now = Date()
    let createdAt = entries[key]?.createdAt ?? now
    entries[key] = .init(key: key, data: data, createdAt: createdAt, updatedAt: now)
  }
}

/// Reads lines from a socket.
struct LineReader {
  let socket: Int32
  /// A fault of engines that were never tested on a slow network.
  var takesOneReadForALine = false
  /// How long to wait after each piece of a line, whatever the deadline. A fault as well.
  var timeout: Duration?
  private var rest: [UInt8] = []

  init(socket: Int32) { self.socket = socket }

  /// Whether a part of a line has been received.
  var isInTheMiddle: Bool { !rest.isEmpty }

  /// The next line; nil at the end and after the deadline.
  mutating func next(until deadline: ContinuousClock.Instant?) -> Data? {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    var deadline = deadline
    while true {
      if let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
        defer { rest.removeFirst(end + 1) }
        return Data(rest[..<end])
      }
      if let deadline, !NetworkSocket.wait(socket, until: deadline) { return nil }
      let count = NetworkSocket.receive(socket, &buffer, buffer.count)
      guard count > 0 else { return nil }
      if takesOneReadForALine { return Data(buffer[..<count]) }
      rest += buffer[..<count]
      if let timeout { deadline = .now + timeout }
    }
  }
}
