import Foundation
import StockroomCore

@testable import ConformanceKit

/// A small server of entries, for engines of the kit's own tests: one line of JSON for each request and each answer.
final class WireServer: Sendable {
  struct Request: Codable {
    enum Kind: String, Codable {
      case change, read, readAll
      /// Asks whether a change has happened, and forbids it if not.
      case settle
      /// Asks to be told of all changes in a place from now on.
      case listen
    }

    var kind: Kind
    /// The number of a change.
    var change: UUID?
    var operations: [Operation] = []
    /// The key to be read, or what all keys begin with that are to be read or removed.
    var key = ""
    var password = WireServer.password
  }

  struct Operation: Codable {
    /// Nil stands for every key that begins with that of the request.
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
    /// For a listener: how many changes this server has made in the place.
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
    /// What another server would have if it took this one's place.
    var replica = Contents()
    /// What it would not have.
    var unreplicated: [Request] = []
    var isAlive = false
    var connections: Set<Int32> = []
    /// The places to which connections listen.
    var listeners: [Int32: String] = [:]
    /// How many changes there have been in each place. Another server starts from zero.
    var changeCounts: [String: Int] = [:]

    /// Sends a change to those that listen. The message is too short for a connection to be full.
    func announce(_ request: Request) {
      var answer = Answer(changed: request.operations.compactMap(\.key))
      answer.isEverythingChanged = request.operations.contains { $0.key == nil }
      answer.changeCount = changeCounts[request.key, default: 0]
      guard let data = try? JSONEncoder().encode(answer) else { return }
      for (listener, place) in listeners where place == request.key {
        // One that has gone is about to be removed.
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
    Thread.detachNewThread { [self] in
      while let client = NetworkSocket.accept(listener) {
        guard state.withLock({ $0.isAlive }) else {
          NetworkSocket.close(client)
          continue
        }
        state.withLock { _ = $0.connections.insert(client) }
        Thread.detachNewThread { [self] in
          serve(client)
          state.withLock { state in
            state.connections.remove(client)
            state.listeners[client] = nil
          }
          NetworkSocket.close(client)
        }
      }
    }
  }

  func start() { state.withLock { $0.isAlive = true } }

  func kill() {
    // Behind the lock, as the number of a socket that is closed may be another's by then.
    state.withLock { state in
      state.isAlive = false
      for connection in state.connections { NetworkSocket.shutDown(connection) }
    }
  }

  /// The replica takes the place.
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
  /// What engines do that were never tried on a slow network.
  var takesOneReadForALine = false
  private var rest: [UInt8] = []

  init(socket: Int32) { self.socket = socket }

  /// The next line, or nil at the end and after the deadline.
  mutating func next(until deadline: ContinuousClock.Instant?) -> Data? {
    var buffer = [UInt8](repeating: 0, count: 65_536)
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
    }
  }
}
