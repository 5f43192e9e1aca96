import Foundation
import NIOCore
import Synchronization

/// The panels of the page. A page reads the changes of several panels over one connection, since browsers open at most
/// six connections to a server.
enum PanelName: String, CaseIterable, Sendable {
  case notes, favourites, counter
}

/// A change of a panel, or a heartbeat, encoded once for all subscribers.
struct FeedMessage: Sendable {
  /// Its position in the feed, from 1.
  let number: Int
  /// Nil for a heartbeat, which all subscribers receive.
  let panel: PanelName?
  let bytes: ByteBuffer
}

/// The latest changes of all panels, which each subscriber reads independently of the others.
///
/// The changes are stored once. The state of a subscriber is the number of the last change that it has received. If the
/// next one has been dropped, the subscriber is too slow and is disconnected; it reconnects and begins with a snapshot.
/// So no subscriber delays another, and memory is bounded.
final class EventFeed: Sendable {
  /// The maximum number of changes that are kept, and of their bytes. The last change is kept in any case.
  private let limit: (messages: Int, bytes: Int)
  /// The maximum number of subscribers.
  let subscriberLimit: Int
  /// Distinguishes this feed from those of other processes, whose numbers are independent.
  let identifier = String(UInt32.random(in: .min ... .max), radix: 36)

  private struct State {
    var messages: [FeedMessage] = []
    /// Messages before this index have been dropped. They are removed from the array once they are more than half of
    /// it.
    var start = 0
    var byteCount = 0
    var last = 0
    var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
    var nextWaiter = 0
    var subscribers: [Int: Subscriber] = [:]
    var nextSubscriber = 0
    var cutOff = 0
    var isClosed = false

    /// The number of the first change that is kept.
    var first: Int { last - (messages.count - start) + 1 }
  }

  private struct Subscriber {
    var cursor: Int
    /// When the write in progress began; nil if there is none.
    var writingSince: ContinuousClock.Instant?
    let disconnect: @Sendable () -> Void
  }

  private let state = Mutex(State())

  init(subscriberLimit: Int, messageLimit: Int = 2_000, byteLimit: Int = 16 << 20) {
    self.subscriberLimit = subscriberLimit
    limit = (messageLimit, byteLimit)
  }

  /// The number of the last change.
  var last: Int { state.withLock { $0.last } }
  var subscriberCount: Int { state.withLock { $0.subscribers.count } }
  /// The number of subscribers that were disconnected because they did not read.
  var cutOffCount: Int { state.withLock { $0.cutOff } }

  /// The event identifier that a browser returns as `Last-Event-ID`.
  func eventID(_ number: Int) -> String { "\(identifier)-\(number)" }

  /// The number in such an identifier; nil if it is invalid or of another feed, or if the next change has been dropped.
  func number(ofEventID id: String) -> Int? {
    let parts = id.split(separator: "-")
    guard parts.count == 2, parts[0] == identifier, let number = Int(parts[1]), number >= 0 else {
      return nil
    }
    return state.withLock { number <= $0.last && number + 1 >= $0.first ? number : nil }
  }

  /// Appends a change, which consists of one or more events, and disconnects the subscribers that are too far behind.
  func publish(_ panel: PanelName?, _ parts: [Data]) {
    let (waiting, slow) = state.withLock { state -> ([CheckedContinuation<Void, Never>], [Subscriber]) in
      if state.isClosed { return ([], []) }
      state.last += 1
      let bytes = Self.events(panel?.rawValue ?? "beat", id: eventID(state.last), parts)
      state.messages.append(FeedMessage(number: state.last, panel: panel, bytes: bytes))
      state.byteCount += bytes.readableBytes
      while state.messages.count - state.start > limit.messages || state.byteCount > limit.bytes,
        state.start < state.messages.count - 1
      {
        state.byteCount -= state.messages[state.start].bytes.readableBytes
        state.start += 1
      }
      if state.start * 2 > state.messages.count {
        state.messages.removeFirst(state.start)
        state.start = 0
      }
      let first = state.first
      return (Self.takeAll(&state.waiting), Self.cutOff(&state) { $0.cursor + 1 < first })
    }
    for continuation in waiting { continuation.resume() }
    for subscriber in slow { subscriber.disconnect() }
  }

  /// A heartbeat. A page that receives nothing for 12 seconds reconnects.
  static func beat(id: String) -> ByteBuffer { event("beat", id: id, Data("{}".utf8)) }

  /// Publishes a heartbeat.
  func beat() { publish(nil, [Data("{}".utf8)]) }

  /// Disconnects the subscribers whose write has taken longer than this.
  func cutOffStalled(for duration: Duration) {
    let now = ContinuousClock.now
    let stalled = state.withLock { state in
      Self.cutOff(&state) { $0.writingSince.map { $0 + duration < now } ?? false }
    }
    for subscriber in stalled { subscriber.disconnect() }
  }

  /// Ends all streams.
  func close() {
    let waiting = state.withLock { state in
      state.isClosed = true
      return Self.takeAll(&state.waiting)
    }
    for continuation in waiting { continuation.resume() }
  }

  private static func takeAll(
    _ waiting: inout [Int: CheckedContinuation<Void, Never>]
  ) -> [CheckedContinuation<Void, Never>] {
    defer { waiting = [:] }
    return Array(waiting.values)
  }

  private static func cutOff(_ state: inout State, where isSlow: (Subscriber) -> Bool) -> [Subscriber] {
    let slow = state.subscribers.filter { isSlow($0.value) }
    for id in slow.keys { state.subscribers[id] = nil }
    state.cutOff += slow.count
    return Array(slow.values)
  }

  // MARK: Subscribers

  /// Whether there is the maximum number of subscribers.
  var isFull: Bool { subscriberCount >= subscriberLimit }

  /// Adds a subscriber that has received everything up to this number. Returns nil if the limit has been reached.
  func subscribe(after number: Int, disconnect: @escaping @Sendable () -> Void) -> Int? {
    state.withLock { state in
      guard state.subscribers.count < subscriberLimit else { return nil }
      state.nextSubscriber += 1
      state.subscribers[state.nextSubscriber] = Subscriber(cursor: number, disconnect: disconnect)
      return state.nextSubscriber
    }
  }

  func unsubscribe(_ subscriber: Int) { state.withLock { $0.subscribers[subscriber] = nil } }

  /// Records that a write to the subscriber begins, or has been completed.
  func isWriting(_ subscriber: Int, _ isWriting: Bool) {
    state.withLock { $0.subscribers[subscriber]?.writingSince = isWriting ? .now : nil }
  }

  /// Waits for the next changes of these panels. Nil at the end of the feed, if the subscriber has been disconnected,
  /// or if the task is cancelled.
  func next(for subscriber: Int, of panels: Set<PanelName>) async -> [ByteBuffer]? {
    while !Task.isCancelled {
      // Nil at the end of the stream.
      let messages = state.withLock { state -> [ByteBuffer]? in
        guard let cursor = state.subscribers[subscriber]?.cursor, cursor + 1 >= state.first, !state.isClosed
        else { return nil }
        let next = state.messages[(state.messages.count - (state.last - cursor))...]
        state.subscribers[subscriber]?.cursor = state.last
        return next.filter { $0.panel.map(panels.contains) ?? true }.map(\.bytes)
      }
      guard let messages else { return nil }
      if !messages.isEmpty { return messages }
      await somethingNew(after: subscriber)
    }
    return nil
  }

  private func somethingNew(after subscriber: Int) async {
    let waiter = state.withLock { state in
      state.nextWaiter += 1
      return state.nextWaiter
    }
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let isThere = state.withLock { state in
          let isThere =
            state.isClosed || Task.isCancelled || state.subscribers[subscriber]?.cursor != state.last
          if !isThere { state.waiting[waiter] = continuation }
          return isThere
        }
        if isThere { continuation.resume() }
      }
    } onCancel: {
      state.withLock { $0.waiting.removeValue(forKey: waiter) }?.resume()
    }
  }

  // MARK: Encoding

  /// A server-sent event.
  static func event(_ name: String, id: String? = nil, _ json: Data) -> ByteBuffer {
    var bytes = ByteBuffer()
    bytes.reserveCapacity(json.count + 64)
    write(name, id: id, json, to: &bytes)
    return bytes
  }

  /// The events of one change. Only the last one has the identifier, so that a subscriber that has received a part of
  /// the change receives all of it when it reconnects.
  private static func events(_ name: String, id: String, _ parts: [Data]) -> ByteBuffer {
    var bytes = ByteBuffer()
    bytes.reserveCapacity(parts.reduce(0) { $0 + $1.count + 64 })
    for (index, part) in parts.enumerated() {
      write(name, id: index == parts.count - 1 ? id : nil, part, to: &bytes)
    }
    return bytes
  }

  private static func write(_ name: String, id: String?, _ json: Data, to bytes: inout ByteBuffer) {
    if let id { bytes.writeString("id: \(id)\n") }
    // Encoded JSON has no line breaks, which would end the data.
    bytes.writeString("event: \(name)\ndata: ")
    bytes.writeBytes(json)
    bytes.writeString("\n\n")
  }
}
