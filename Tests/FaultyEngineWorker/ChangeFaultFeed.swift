import Foundation
import StockroomCore

/// The subscribers of an engine, and the changes that they miss because of a fault.
final class ChangeFaultFeed: Sendable {
  typealias Fault = ChangeFaultEngine.Fault
  typealias Subscribers = [Int: StorageChanges.Continuation]

  /// The kind of call that has changed something.
  enum Call: Sendable {
    case write, overwrite, writeMany, remove, removeMany, removeAll, apply, transaction
    case applyRemoveAll, transactionRemoveAll, writeEntries
    /// A change that has already been reported.
    case none
  }

  private struct State {
    var subscribers: Subscribers = [:]
    var nextID = 0
    var isPolled = false
    var isStopped = false
    /// The elements that are sent at a later poll.
    var delayed: [(change: StorageChange, subscribers: Subscribers)] = []
    // State of faults
    var reportedKeyCount = 0
    var isMute = false
    var hasWritten = false
    var hasThrown = false
    var (lastPoll, lastReport) = (ContinuousClock.now, ContinuousClock.now)
    var pollsToSkip = 0
    var lastOfOthers: [StorageOperation] = []
    var bytesOfOthers = 0
    var backlogs: [Int: ChangeFaultBacklog] = [:]
    var lastOpening = ""
    /// The subscribers that no longer receive changes by other engines.
    var unreachable: Set<Int> = []
    /// The subscribers with a `ChangeOrigin`.
    var withOrigin: Set<Int> = []
  }

  private let state = MutexProtected(State())
  private let fault: Fault?
  private let place: String
  /// How many engines of this process already existed on the place.
  private let number: Int
  /// Whether an engine on the place has been closed before.
  private let isReopened: Bool

  /// The feeds of this process by place, for faults that mix them up.
  private struct Weak: Sendable { weak var feed: ChangeFaultFeed? }
  private static let feeds = MutexProtected<[String: [Weak]]>([:])
  private static let closedPlaces = MutexProtected<Set<String>>([])

  init(_ fault: Fault?, place: URL) {
    let path = place.path(percentEncoded: false)
    (self.fault, self.place) = (fault, path)
    isReopened = Self.closedPlaces.withLock { $0.contains(path) }
    number = Self.feeds.withLock { feeds in (feeds[path] ?? []).count { $0.feed != nil } }
    Self.feeds.withLock { $0[path, default: []].append(Weak(feed: self)) }
  }

  var subscribers: Subscribers { state.withLock { $0.subscribers } }

  private var siblings: [ChangeFaultFeed] {
    Self.feeds.withLock { [place] in ($0[place] ?? []).compactMap(\.feed) }
  }

  /// The feeds of all places, for faults that confuse places.
  private static var feedsWithoutPlaces: [ChangeFaultFeed] {
    let all = feeds.withLock { feeds in feeds.values.flatMap { $0.compactMap(\.feed) } }
    return all.filter { $0.fault == .announcesOtherPlaces }
  }

  // MARK: - Subscribing

  /// - Parameter look: Checks for changes by others. Called about every millisecond.
  func subscribe(looking look: (@Sendable () -> Void)? = nil) -> StorageChanges {
    let (changes, continuation) = StorageChanges.makeStream(
      keyLimit: fault == .buffersWithoutBound ? .max : StorageChanges.defaultKeyLimit)
    if fault == .leaksDescriptorsPerSubscription { _ = open("/dev/null", O_RDONLY) }
    let missesChanges =
      fault == .missesChangesWithoutDescriptors && FileHandle(forReadingAtPath: "/dev/null") == nil
      || fault == .missesChangesWithoutLog && access(place + "/log", F_OK) != 0
    let (id, isFirst) = state.withLock { state in
      state.nextID += 1
      state.subscribers[state.nextID] = continuation
      if ChangeOrigin.current != nil { state.withOrigin.insert(state.nextID) }
      state.pollsToSkip = fault == .noticesSubscriptionsLate ? 2 : 0
      defer { if look != nil { state.isPolled = true } }
      return (state.nextID, !state.isPolled)
    }
    continuation.onTermination { [weak self] in self?.leave(id) }
    if fault == .announcesSubscriptions {
      for (other, continuation) in subscribers where other != id { continuation.send(.everything) }
    }
    // Simulates a system that reports dropped events to the second subscriber.
    if fault == .skipsOneChange, id == 2 { continuation.send(.everything) }
    if isFirst, let look, !missesChanges { poll(look) }
    guard fault == .stopsAfterOverflows else { return changes }
    let backlog = ChangeFaultBacklog()
    state.withLock { $0.backlogs[id] = backlog }
    return changes.mapping { change in
      backlog.isRead()
      return change
    }
  }

  private func leave(_ id: Int) {
    let remaining = state.withLock { state in
      state.subscribers[id] = nil
      state.backlogs[id] = nil
      return state.subscribers
    }
    if fault == .endsAllWithOneSubscriber { for continuation in remaining.values { continuation.finish() } }
  }

  /// Polls about every millisecond, as long as the engine exists and is open.
  private func poll(_ look: @escaping @Sendable () -> Void) {
    Thread.detachNewThread { [weak self] in
      while let self, !self.state.withLock({ $0.isStopped }) {
        if !self.subscribers.isEmpty { look() }
        if self.fault == .announcesNowAndThen { self.reportPeriodically() }
        if self.fault == .announcesOpeningsOfOtherProcesses { self.reportOpenings() }
        self.sendDelayed()
        usleep(1_000)
      }
    }
  }

  /// Sends an element for everything to its subscribers every eight seconds.
  private func reportPeriodically() {
    let isDue = state.withLock { state in
      guard ContinuousClock.now - state.lastPoll > .seconds(8) else { return false }
      state.lastPoll = .now
      return true
    }
    if isDue { report(.everything) }
  }

  /// Writes a file to the place, which notes that this process has opened it.
  func noteOpening() {
    let opening = "\(ProcessInfo.processInfo.processIdentifier) \(UUID())"
    try? opening.write(toFile: place + "/opening", atomically: true, encoding: .utf8)
  }

  /// Sends an element for everything when another process has opened the place.
  private func reportOpenings() {
    let opening = (try? String(contentsOfFile: place + "/opening", encoding: .utf8)) ?? ""
    let isOwn = opening.hasPrefix("\(ProcessInfo.processInfo.processIdentifier) ")
    let isNew = state.withLock { state in
      defer { state.lastOpening = opening }
      return opening != state.lastOpening
    }
    if isNew, !isOwn, !opening.isEmpty { report(.everything) }
  }

  func close() {
    Self.closedPlaces.withLock { [place] in _ = $0.insert(place) }
    let subscribers = state.withLock { state in
      state.isStopped = true
      return state.subscribers
    }
    if fault != .dropsWhatIsUnreadWhenClosed { sendDelayed() }
    if fault == .goesOnWhenClosed { return }
    for continuation in subscribers.values { continuation.finish() }
    if fault == .endsAllWithOneEngine {
      for feed in siblings { for continuation in feed.subscribers.values { continuation.finish() } }
    }
  }

  /// Waits until all subscribers have ended, once changes of more than 2,000 keys have been reported.
  func waitUntilUnused() async {
    while state.withLock({ $0.reportedKeyCount > 2_000 && !$0.subscribers.isEmpty }) {
      // A cancelled task waits as well.
      try? await Task.sleep(for: .milliseconds(5))
    }
  }

  // MARK: - Sending

  /// Sends a change to the subscribers, at once or later, with the faults that do not depend on the call.
  func report(_ change: StorageChange, to chosen: Subscribers? = nil) {
    let change = fault == .saysEverything ? .everything : change
    let receivers = state.withLock { state -> Subscribers in
      if case .keys(let keys) = change {
        state.reportedKeyCount += keys.count
      } else {
        state.reportedKeyCount += 1_000
      }
      if state.isMute || fault == .givesUpOnSlowSubscribers && state.reportedKeyCount > 500 { return [:] }
      var receivers = chosen ?? state.subscribers
      if fault == .mixesOrigins, ChangeOrigin.current != nil {
        receivers = receivers.filter { !state.withOrigin.contains($0.key) }
      }
      if fault == .notifiesTheFirst64 {
        let reported = Set(receivers.keys.sorted().prefix(64))
        receivers = receivers.filter { reported.contains($0.key) }
      }
      if fault == .notifiesOnlyTheFirst, let first = receivers.keys.min() {
        receivers = receivers.filter { $0.key == first }
      }
      let backlogs = state.backlogs
      receivers = receivers.filter { backlogs[$0.key]?.admitsMore() ?? true }
      switch fault {
      case .mergesForAWhile: state.delayed.append((change, receivers))
      case .waitsForAPause, .mergesRemovalsAway:
        state.delayed.append((change, receivers))
        state.lastReport = .now
      case .forgetsWhatIsOld:
        state.delayed.append((change, receivers))
        if state.delayed.count > 100 { state.delayed.removeFirst() }
        state.lastReport = .now
      case .dropsWhatIsUnreadWhenClosed:
        // The first of several subscribers is one that does not read.
        guard receivers.count > 1, let first = receivers.keys.min() else { return receivers }
        state.delayed.append((change, receivers.filter { $0.key == first }))
        state.lastReport = .now
        return receivers.filter { $0.key != first }
      default: return receivers
      }
      return [:]
    }
    for continuation in receivers.values { continuation.send(change) }
  }

  func reportToAllEngines(_ change: StorageChange) { for feed in siblings { feed.report(change) } }

  func reportToOtherEngines(_ change: StorageChange) {
    for feed in siblings where feed !== self { feed.report(change) }
  }

  private func sendDelayed() {
    let delayed = state.withLock { state -> [(change: StorageChange, subscribers: Subscribers)] in
      // With these faults, nothing is sent while the engine is busy.
      let quiet: [Fault: Duration] = [
        .forgetsWhatIsOld: .milliseconds(100), .waitsForAPause: .seconds(1),
        .mergesRemovalsAway: .seconds(1), .dropsWhatIsUnreadWhenClosed: .seconds(20),
      ]
      if let fault, let quiet = quiet[fault], .now - state.lastReport < quiet { return [] }
      defer { state.delayed = [] }
      if fault != .mergesRemovalsAway { return state.delayed }
      let ofKeys = state.delayed.filter { $0.change != .everything }
      return ofKeys.isEmpty ? state.delayed : ofKeys
    }
    for (change, subscribers) in delayed {
      for continuation in subscribers.values { continuation.send(change) }
    }
  }

  /// Sends the changes of a call of this engine.
  func report(of operations: [StorageOperation], by call: Call, to chosen: Subscribers? = nil) {
    if call == .none || call == fault?.missedCall { return }
    state.withLock { $0.hasWritten = true }
    if fault == .missesLargeTransactions, call == .transaction, operations.count > 1_000 { return }
    let isAfterError = state.withLock { state in
      defer { state.hasThrown = false }
      return state.hasThrown
    }
    if fault == .missesTheNextAfterErrors, call == .transaction, isAfterError { return }
    let missesRemovals =
      fault == .missesRemoveAllInBatches && call == .applyRemoveAll
      || fault == .missesRemoveAllInTransactions && call == .transactionRemoveAll
    let operations = operations.filter { !missesRemovals || !$0.isRemoveAll }
    guard let change = StorageChange(of: withoutCancelledOut(operations)) else {
      return
    }
    report(limited(change), to: chosen)
    if fault == .announcesOtherPlaces {
      for feed in Self.feedsWithoutPlaces where feed !== self { feed.report(change) }
    }
    if fault == .followsOnlyItsProcess { for feed in siblings where feed !== self { feed.report(change) } }
  }

  /// The operations of a batch without removals and writes of the same key, in either order, which cancel each other
  /// out.
  private func withoutCancelledOut(_ operations: [StorageOperation]) -> [StorageOperation] {
    guard fault == .cancelsOutReplacements || fault == .cancelsOutRemovals else { return operations }
    let isWrite = { (operation: StorageOperation) in if case .write = operation { true } else { false } }
    let keys = Dictionary(grouping: operations) { $0.key }.filter { _, operations in
      operations.count == 2 && operations.first.map(isWrite) == (fault == .cancelsOutRemovals)
        && operations.last.map(isWrite) == (fault == .cancelsOutReplacements)
    }.keys
    return operations.filter { !keys.contains($0.key) }
  }

  /// The change as the fault alters it.
  private func limited(_ change: StorageChange) -> StorageChange {
    guard case .keys(let keys) = change else { return change }
    switch fault {
    case .hidesItsOwnNames: return .keys(keys.filter { !$0.value.hasPrefix("__") })
    case .missesLongKeys: return .keys(keys.filter { $0.value.utf8.count < 256 })
    case .namesKeysWithoutCase: return .keys(Set(keys.map { CacheKey(verbatim: $0.value.lowercased()) }))
    case .announcesAFewKeys: return .keys(Set(keys.prefix(100)))
    default: return change
    }
  }

  /// Sends the changes by other engines.
  func report(ofOthers operations: [StorageOperation]) {
    if operations.isEmpty { return }
    let reported = state.withLock { state -> [StorageOperation] in
      switch fault {
      case .followsOnlyItself, .followsOnlyItsProcess: return []
      case .followsNobodyWhenReopened where isReopened: return []
      case .followsFewEngines where number >= 8: return []
      case .followsNoOtherAfterOwnWrites where state.hasWritten: return []
      case .losesItsPlaceInNewLogs:
        // A log of half a mebibyte is restarted.
        for case .write(let data, _) in operations { state.bytesOfOthers += data.count }
        return state.bytesOfOthers > 1 << 19 ? [] : operations
      case .receivesAHundredKeys: return Array(operations.prefix(100))
      case .noticesSubscriptionsLate where state.pollsToSkip > 0:
        state.pollsToSkip -= 1
        return []
      case .missesUnusualKeysOfOthers:
        return operations.filter { operation in
          guard let key = operation.key else { return true }
          return key.value.utf8.allSatisfy { (0x21...0x7E).contains($0) }
        }
      case .announcesOthersOneLate:
        defer { state.lastOfOthers = Array(operations.suffix(1)) }
        return state.lastOfOthers + operations.dropLast()
      default: return operations
      }
    }
    guard let change = StorageChange(of: reported) else { return }
    if fault != .staysOnRemovedFiles { return report(change) }
    let reached = state.withLock { state in
      let reached = state.subscribers.filter { !state.unreachable.contains($0.key) }
      // As if the others had replaced their file, while these subscribers still watch the old one.
      if operations.contains(where: \.isRemoveAll) { state.unreachable.formUnion(reached.keys) }
      return reached
    }
    report(change, to: reached)
  }

  /// Records a call that threw.
  func noteError(_ operations: [StorageOperation]) {
    state.withLock { state in
      state.hasThrown = true
      if fault == .stopsAfterErrors { state.isMute = true }
    }
    if fault == .announcesRefusedWrites, !operations.isEmpty { report(.everything) }
  }
}
