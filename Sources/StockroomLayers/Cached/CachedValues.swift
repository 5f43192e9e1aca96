import StockroomCore
import StockroomStore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The values that a ``CachedEngine`` has in memory, and what keeps them right.
///
/// A value is kept only if nobody has begun to change its key since it was asked for, or since its write began.
final class CachedValues: Sendable {
  /// What a call changes, from before it begins until after it has ended.
  final class Change: Sendable {
    fileprivate struct Extent {
      var keys: Set<CacheKey> = []
      var isOfEverything = false
      var hasEnded = false
    }

    /// Locked before the state of the cache where both are.
    fileprivate let extent = MutexProtected(Extent())
  }

  enum Read {
    /// The value, or that there is none.
    case known(Data?)
    /// The engine below has to be asked. The ticket says whether the answer may be kept; without one it may not.
    case unknown(ticket: UInt64?)
  }

  /// The changes of one key that are under way.
  fileprivate struct Changing {
    var count = 0
    /// Whether there was only one, and nobody else has changed the key since it began.
    var isAlone = true
  }

  fileprivate enum Feed {
    case none
    case subscribing
    case followed(StorageChanges)
    case failed(readsSince: Int)
    case unavailable
  }

  fileprivate struct State {
    var origin = ChangeOrigin()
    var values = LRUList<CacheKey, Data?>()
    var feed = Feed.none
    /// Reads under way whose answers may be kept: for each key a ticket, and how many have it.
    var reads: [CacheKey: (ticket: UInt64, count: Int)] = [:]
    var lastTicket: UInt64 = 0
    var changing: [CacheKey: Changing] = [:]
    var changesOfEverything = 0
  }

  /// What this cache writes, which the feed leaves out.
  var origin: ChangeOrigin { state.withLock { $0.origin } }

  private let limit: CacheLimit
  private let state = MutexProtected(State())

  init(limit: CacheLimit) { self.limit = limit }

  // MARK: Following

  /// Whether the caller is to subscribe to the feed, and then call ``follow(_:)`` or ``subscriptionFailed()``.
  func claimSubscription() -> Bool {
    state.withLock { state in
      switch state.feed {
      case .subscribing, .followed, .unavailable: return false
      case .failed(let reads) where reads < 64:
        state.feed = .failed(readsSince: reads + 1)
        return false
      case .none, .failed:
        state.feed = .subscribing
        return true
      }
    }
  }

  /// Keeps values from now on, or, if there is no feed, never.
  ///
  /// - Parameter origin: Whose changes the feed leaves out.
  func follow(_ changes: StorageChanges?, leavingOut origin: ChangeOrigin) {
    state.withLock { state in
      // It may have been closed meanwhile, or have another origin.
      guard case .subscribing = state.feed, state.origin === origin else { return }
      // What others have changed during a write that began before this, the feed does not tell.
      state.forget(.everything)
      state.feed = changes.map { .followed($0) } ?? .unavailable
    }
  }

  func subscriptionFailed() {
    state.withLock { state in
      if case .subscribing = state.feed { state.feed = .failed(readsSince: 0) }
    }
  }

  /// What this cache has written may take effect later, and the feed would leave it out. So nothing is kept until there is a feed that
  /// leaves out another origin.
  func outcomeIsUnknown() {
    let last = state.withLock { state in
      let last = state.feed
      state.forget(.everything)
      state.origin = ChangeOrigin()
      switch state.feed {
      case .subscribing, .followed: state.feed = .none
      case .none, .failed, .unavailable: break
      }
      return last
    }
    // The lock is not held while it is released.
    _ = last
  }

  /// Keeps nothing any more.
  func stop() {
    let last = state.withLock { state in
      defer { (state.values, state.reads, state.feed) = (LRUList(), [:], .unavailable) }
      return (state.values, state.feed)
    }
    // The lock is not held while they are released.
    _ = last
  }

  /// Somebody else has changed this.
  func forget(_ change: StorageChange) {
    state.withLock { $0.forget(change) }
  }

  // MARK: Reading

  /// The value in memory, if there is one: nil in it says that the key is absent.
  func value(of key: CacheKey) -> Data?? {
    state.withLock { $0.catchUp() ? $0.values.use(key) : nil }
  }

  /// Begins a read. What is unknown is followed by ``endRead(of:_:_:)``.
  func beginRead(of key: CacheKey) -> Read {
    state.withLock { state in
      guard state.catchUp() else { return .unknown(ticket: nil) }
      if let value = state.values.use(key) { return .known(value) }
      guard state.changing[key] == nil, state.changesOfEverything == 0 else { return .unknown(ticket: nil) }
      if let (ticket, count) = state.reads[key] {
        state.reads[key] = (ticket, count + 1)
        return .unknown(ticket: ticket)
      }
      state.lastTicket += 1
      state.reads[key] = (state.lastTicket, 1)
      return .unknown(ticket: state.lastTicket)
    }
  }

  /// Keeps the answer of the engine below, if it still is the answer.
  ///
  /// - Parameter value: Nil if it has failed.
  func endRead(of key: CacheKey, _ ticket: UInt64?, _ value: Data??) {
    guard let ticket else { return }
    state.withLock { state in
      guard state.catchUp(), let read = state.reads[key], read.ticket == ticket else { return }
      state.reads[key] = read.count > 1 ? (ticket, read.count - 1) : nil
      guard let value else { return }
      if let other = state.values[key], other != value {
        // Somebody has changed it in between, and is about to say so.
        state.forget(.keys([key]))
      } else {
        state.keep(value, for: key, limit)
      }
    }
  }

  // MARK: Changing

  /// A change begins, or is about to change more. Nothing follows if it has ended: the engine below refuses a transaction that is used
  /// after its end, and nobody would end the change again.
  func begin(_ change: Change, of keys: [CacheKey] = [], everything: Bool = false) {
    change.extent.withLock { extent in
      if extent.hasEnded { return }
      if everything, !extent.isOfEverything {
        extent.isOfEverything = true
        state.withLock { state in
          state.changesOfEverything += 1
          state.forget(.everything)
        }
      }
      for key in keys where extent.keys.insert(key).inserted {
        state.withLock { state in
          let isFirst = state.changing[key] == nil && state.changesOfEverything == 0
          state.forget(.keys([key]))
          state.changing[key, default: Changing()].count += 1
          state.changing[key]?.isAlone = isFirst
        }
      }
    }
  }

  /// A change has ended, whatever became of it.
  ///
  /// - Parameter written: What has been acknowledged.
  func end(_ change: Change, written: (key: CacheKey, value: Data?)? = nil) {
    // An entry in memory takes the memory of its own bytes, and nobody else can change them.
    let copy = written?.value.map { value in value.withUnsafeBytes { Data($0) } }
    let extent = change.extent.withLock { extent in
      extent.hasEnded = true
      return extent
    }
    for key in extent.keys {
      state.withLock { state in
        let isCurrent = state.catchUp()
        guard var changing = state.changing[key] else { return }
        changing.count -= 1
        state.changing[key] = changing.count > 0 ? changing : nil
        if isCurrent, changing.isAlone, changing.count == 0, written?.key == key {
          state.keep(copy, for: key, limit)
        }
      }
    }
    if extent.isOfEverything { state.withLock { $0.changesOfEverything -= 1 } }
  }
}

extension CachedValues.State {
  /// Takes note of what others have changed. Returns whether values may be used and kept.
  fileprivate mutating func catchUp() -> Bool {
    guard case .followed(let changes) = feed else { return false }
    if let change = changes.takePending() { forget(change) }
    if changes.hasEnded {
      forget(.everything)
      feed = .unavailable
      return false
    }
    return true
  }

  fileprivate mutating func forget(_ change: StorageChange) {
    switch change {
    case .keys(let keys):
      for key in keys {
        values.remove(key)
        reads[key] = nil
        changing[key]?.isAlone = false
      }
    case .everything:
      values = LRUList()
      reads = [:]
      for key in changing.keys { changing[key]?.isAlone = false }
    }
  }

  /// What an entry takes beside its key and value, in bytes.
  private static let overhead = 128

  fileprivate mutating func keep(_ value: Data?, for key: CacheKey, _ limit: CacheLimit) {
    // An entry that is known to be absent, or empty, takes memory as well.
    let size = (value?.count ?? 0) + key.value.utf8.count + Self.overhead
    guard limit.admits(bytes: size) else { return }
    values.put(value, size: size, for: key)
    while limit.isExceeded(entries: values.count, bytes: values.size) { _ = values.removeOldest() }
  }
}
