import Foundation
import NIOCore
import Synchronization

/// What a panel of the page shows. Each has a stream of its own; a page reads several over one connection, since browsers make
/// no more than six to one server.
enum PanelName: String, CaseIterable, Sendable {
  case notes, favourites, counter
}

/// A change of a panel, encoded once for everybody.
struct FeedMessage: Sendable {
  /// Its place in the feed, from 1.
  let number: Int
  /// Nil for a sign of life, which everybody gets.
  let panel: PanelName?
  let bytes: ByteBuffer
}

/// The latest changes of all panels, from which each subscriber reads at its own pace.
///
/// There is one copy of them for all. A subscriber is a number: the last change that it has got. One whose next change is no longer
/// here has been too slow, and is disconnected; it comes back with a fresh snapshot. So nobody delays anybody, and memory is
/// bounded whatever subscribers do.
final class EventFeed: Sendable {
  /// How many changes are kept, and how many bytes of them.
  private let limit: (messages: Int, bytes: Int)
  /// How many subscribers there are at most.
  let subscriberLimit: Int
  /// Distinguishes this feed from those of other processes, whose numbers mean something else.
  let identifier = String(UInt32.random(in: .min ... .max), radix: 36)

  private struct State {
    var messages: [FeedMessage] = []
    /// Those before it are gone. They are removed when they are half of all.
    var start = 0
    var byteCount = 0
    var last = 0
    var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
    var nextWaiter = 0
    var subscribers: [Int: Subscriber] = [:]
    var nextSubscriber = 0
    var cutOff = 0
    var isClosed = false

    /// The changes before this one are gone.
    var first: Int { last - (messages.count - start) + 1 }
  }

  private struct Subscriber {
    var cursor: Int
    /// Since when bytes wait for it to read.
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
  /// How many subscribers have been disconnected because they did not read.
  var cutOffCount: Int { state.withLock { $0.cutOff } }

  /// The identifier by which a browser says what it has got.
  func eventID(_ number: Int) -> String { "\(identifier)-\(number)" }

  /// The number in such an identifier; nil if it is not of this feed, or of what is not in it any more.
  func number(ofEventID id: String) -> Int? {
    let parts = id.split(separator: "-")
    guard parts.count == 2, parts[0] == identifier, let number = Int(parts[1]), number >= 0 else {
      return nil
    }
    return state.withLock { number <= $0.last && number + 1 >= $0.first ? number : nil }
  }

  /// Appends a change, and disconnects those who are too far behind.
  func publish(_ panel: PanelName?, _ json: Data) {
    let (waiting, slow) = state.withLock { state -> ([CheckedContinuation<Void, Never>], [Subscriber]) in
      if state.isClosed { return ([], []) }
      state.last += 1
      let bytes = Self.event(panel?.rawValue ?? "beat", id: eventID(state.last), json)
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

  /// A sign of life, by which pages know that they are still connected.
  static func beat(id: String) -> ByteBuffer { event("beat", id: id, Data("{}".utf8)) }

  /// Publishes a sign of life.
  func beat() { publish(nil, Data("{}".utf8)) }

  /// Disconnects those who have read nothing for so long.
  func cutOffStalled(for duration: Duration) {
    let now = ContinuousClock.now
    let stalled = state.withLock { state in
      Self.cutOff(&state) { $0.writingSince.map { $0 + duration < now } ?? false }
    }
    for subscriber in stalled { subscriber.disconnect() }
  }

  /// Ends all streams. Nothing comes any more.
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

  /// Whether another subscriber would be one too many.
  var isFull: Bool { subscriberCount >= subscriberLimit }

  /// Adds a subscriber that has everything up to this number. Returns nil if there are as many as allowed.
  func subscribe(after number: Int, disconnect: @escaping @Sendable () -> Void) -> Int? {
    state.withLock { state in
      guard state.subscribers.count < subscriberLimit else { return nil }
      state.nextSubscriber += 1
      state.subscribers[state.nextSubscriber] = Subscriber(cursor: number, disconnect: disconnect)
      return state.nextSubscriber
    }
  }

  func unsubscribe(_ subscriber: Int) { state.withLock { $0.subscribers[subscriber] = nil } }

  /// Notes that bytes are on their way to the subscriber from now on, or have arrived.
  func isWriting(_ subscriber: Int, _ isWriting: Bool) {
    state.withLock { $0.subscribers[subscriber]?.writingSince = isWriting ? .now : nil }
  }

  /// The changes of these panels that come next for the subscriber, as soon as there are some. Nil at the end of the feed, and for a
  /// subscriber that has been cut off.
  func next(for subscriber: Int, of panels: Set<PanelName>) async -> [ByteBuffer]? {
    while !Task.isCancelled {
      // Nil if the subscriber gets nothing more.
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
    if let id { bytes.writeString("id: \(id)\n") }
    // Encoded JSON has no line breaks, which would end the data.
    bytes.writeString("event: \(name)\ndata: ")
    bytes.writeBytes(json)
    bytes.writeString("\n\n")
    return bytes
  }
}
