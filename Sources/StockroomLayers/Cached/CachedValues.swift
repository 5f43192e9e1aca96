import StockroomCore
import StockroomStore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The values that a ``CachedEngine`` has in memory, and the state that keeps them up to date.
///
/// A value is cached only if no other change of its key has begun since its read or its write began.
final class CachedValues: Sendable {
  /// The keys that a call changes, registered from before it changes them until it has ended.
  final class Change: Sendable {
    fileprivate struct Extent {
      var keys: Set<CacheKey> = []
      var isOfEverything = false
      var hasEnded = false
    }

    /// Where both are locked, this is locked before the state of the cache.
    fileprivate let extent = MutexProtected(Extent())
  }

  enum Read {
    /// The cached value, or nil if the key is known to be absent.
    case known(Data?)
    /// The value must be read from the engine below. It may be cached only if there is a ticket, and the ticket is still valid when
    /// the read ends.
    case unknown(ticket: UInt64?)
  }

  /// The changes of one key that are in progress.
  fileprivate struct Changing {
    var count = 0
    /// Whether there is only one change, and no other change of the key has begun or been reported since it began.
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
    /// Reads in progress whose results may be cached: for each key, a ticket and the number of reads that have it.
    var reads: [CacheKey: (ticket: UInt64, count: Int)] = [:]
    var lastTicket: UInt64 = 0
    var changing: [CacheKey: Changing] = [:]
    var changesOfEverything = 0
  }

  /// The origin of the writes of this cache, which its feed leaves out.
  var origin: ChangeOrigin { state.withLock { $0.origin } }

  private let limit: CacheLimit
  private let state = MutexProtected(State())

  init(limit: CacheLimit) { self.limit = limit }

  // MARK: Following

  /// Whether the caller must subscribe to the feed, and then call ``follow(_:leavingOut:)`` or ``subscriptionFailed()``.
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

  /// Caches values from now on or, if the feed is nil, never.
  ///
  /// - Parameter origin: The origin whose changes the feed leaves out.
  func follow(_ changes: StorageChanges?, leavingOut origin: ChangeOrigin) {
    state.withLock { state in
      // In the meantime the cache may have been closed, or have a new origin.
      guard case .subscribing = state.feed, state.origin === origin else { return }
      // The feed does not report changes that others made before it began, such as during a write that is still in progress.
      state.forget(.everything)
      state.feed = changes.map { .followed($0) } ?? .unavailable
    }
  }

  func subscriptionFailed() {
    state.withLock { state in
      if case .subscribing = state.feed { state.feed = .failed(readsSince: 0) }
    }
  }

  /// Clears the cache after a write with an unknown outcome. The write may take effect later, and the feed would leave it out. So
  /// nothing is cached until there is a feed that leaves out another origin.
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
    // The feed is released after the mutex has been unlocked.
    _ = last
  }

  /// Clears the cache, and caches nothing from now on.
  func stop() {
    let last = state.withLock { state in
      defer { (state.values, state.reads, state.feed) = (LRUList(), [:], .unavailable) }
      return (state.values, state.feed)
    }
    // The values and the feed are released after the mutex has been unlocked.
    _ = last
  }

  /// Removes what has changed from the cache.
  func forget(_ change: StorageChange) {
    state.withLock { $0.forget(change) }
  }

  // MARK: Reading

  /// The cached value: `.some(nil)` if the key is known to be absent, nil if nothing is cached.
  func value(of key: CacheKey) -> Data?? {
    state.withLock { $0.catchUp() ? $0.values.use(key) : nil }
  }

  /// Begins a read. If the result is ``Read/unknown(ticket:)``, the caller must call ``endRead(of:_:_:)``.
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

  /// Ends a read. Caches the value unless its key may have changed since the read began.
  ///
  /// - Parameter value: The value, `.some(nil)` if the key is absent, or nil if the read has failed.
  func endRead(of key: CacheKey, _ ticket: UInt64?, _ value: Data??) {
    guard let ticket else { return }
    state.withLock { state in
      guard state.catchUp(), let read = state.reads[key], read.ticket == ticket else { return }
      state.reads[key] = read.count > 1 ? (ticket, read.count - 1) : nil
      guard let value else { return }
      if let other = state.values[key], other != value {
        // A concurrent read has returned another value, so there was a change in between that the feed has not reported yet.
        state.forget(.keys([key]))
      } else {
        state.keep(value, for: key, limit)
      }
    }
  }

  // MARK: Changing

  /// Registers keys of a change before they are changed. Does nothing if the change has ended: the engine below throws if a
  /// transaction is used after its end, and nothing would end the change again.
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

  /// Ends a change, whether or not it succeeded.
  ///
  /// - Parameter written: The value that has been acknowledged and may be cached. Nil if there is none.
  func end(_ change: Change, written: (key: CacheKey, value: Data?)? = nil) {
    // A copy, which takes no more memory than its bytes, and which no one else can change.
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
  /// Removes what the feed has reported as changed. Returns whether cached values may be used, and values may be cached.
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

  /// The memory that an entry takes in addition to its key and value, in bytes.
  private static let overhead = 128

  fileprivate mutating func keep(_ value: Data?, for key: CacheKey, _ limit: CacheLimit) {
    // Absent entries and empty values take memory as well.
    let size = (value?.count ?? 0) + key.value.utf8.count + Self.overhead
    guard limit.admits(bytes: size) else { return }
    values.put(value, size: size, for: key)
    while limit.isExceeded(entries: values.count, bytes: values.size) { _ = values.removeOldest() }
  }
}
