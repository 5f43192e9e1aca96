import Foundation
import StockroomCore

/// The stored entries, in memory.
struct Contents {
  struct Entry {
    var data: Data
    var createdAt: Date
    var updatedAt: Date
    var sequence: Int
  }

  private(set) var entries: [CacheKey: Entry] = [:]
  /// As of the last call of `sortKeys()`.
  private(set) var sortedKeys: [CacheKey] = []
  /// The keys that were added or removed since, possibly more than once.
  private var unsortedKeys: [CacheKey] = []
  /// The amount that a fault adds to the number of keys.
  var surplus = 0
  private var sequence = 0

  mutating func orderByKey() {
    sortKeys()
    for (index, key) in sortedKeys.enumerated() { entries[key]?.sequence = index - sortedKeys.count }
  }

  /// Reserves this many positions at the end of the order. Returns the first.
  mutating func reserve(_ count: Int) -> Int {
    defer { sequence += count }
    return sequence + 1
  }

  /// - Parameter stamp: The values that a fault has determined too early.
  mutating func apply(_ operations: [StorageOperation], at now: Date, stamped stamp: EarlyStamp? = nil) {
    for (offset, operation) in operations.enumerated() {
      switch operation {
      case .write(let data, let key):
        // A new copy with indices from 0, even if the caller passed a slice.
        if let old = entries[key] {
          entries[key]?.data = Data(data)
          entries[key]?.updatedAt = stamp?.time ?? max(old.updatedAt, now)
        } else {
          let place = stamp?.place.map { $0 + offset } ?? reserve(1)
          entries[key] = Entry(data: Data(data), createdAt: now, updatedAt: now, sequence: place)
          unsortedKeys.append(key)
        }
      case .remove(let key):
        if entries.removeValue(forKey: key) != nil { unsortedKeys.append(key) }
      case .removeAll:
        entries = [:]
        sortedKeys = []
        unsortedKeys = []
      }
    }
  }

  /// Must be called before the keys are read in order. Sorting at each change would move half of all keys each time.
  mutating func sortKeys() {
    defer { unsortedKeys = [] }
    if unsortedKeys.count > sortedKeys.count / 64 {
      sortedKeys = entries.keys.sorted()
      return
    }
    for key in unsortedKeys {
      let index = sortedKeys.bisect { $0 >= key }
      switch (index < sortedKeys.count && sortedKeys[index] == key, entries[key] != nil) {
      case (false, true): sortedKeys.insert(key, at: index)
      case (true, false): sortedKeys.remove(at: index)
      case (true, true), (false, false): break
      }
    }
  }
}

/// The values that a fault determines under the lock of its own engine, before it takes that of the place.
struct EarlyStamp {
  var time: Date?
  var place: Int?
}

extension Array {
  /// The first index from which on all elements satisfy the condition, by binary search; the end if there is none.
  func bisect(_ condition: (Element) -> Bool) -> Int {
    var (low, high) = (0, count)
    while low < high {
      let middle = (low + high) / 2
      if condition(self[middle]) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}

/// The state that all engines on one place share.
final class SharedContents: Sendable {
  private struct State: ~Copyable {
    var contents = Contents()
    var log: LogFile?
    /// Whether the log has been loaded: the first call that uses the entries does that.
    var isLoaded = false
    var pending: [(Date, [StorageOperation])] = []
    /// The number of commits.
    var version = 0
  }

  let feed = ReferenceFeed()

  private let state: MutexProtected<State>
  private let fault: ReferenceEngine.Fault?

  init(log: consuming LogFile?, fault: ReferenceEngine.Fault?) throws {
    self.fault = fault
    var state = State()
    state.log = log
    self.state = MutexProtected(state)
  }

  private func load(_ state: inout State) throws {
    if state.isLoaded { return }
    state.contents = Contents()
    let ignoresChecksums = fault == .ignoresChecksums
    do {
      for (time, operations) in try state.log?.records(ignoringChecksums: ignoresChecksums) ?? [] {
        let count = state.contents.entries.count
        state.contents.apply(operations, at: time)
        if fault == .countsWritesWhenOpened, state.contents.entries.count == count {
          state.contents.surplus += 1
        }
      }
      if fault == .ordersByKeyWhenOpened { state.contents.orderByKey() }
    } catch  where fault == .startsAnewWhenCorrupted || fault == .startsAnewOnceItHasThrown {
      state.contents = Contents()
      try state.log?.clear()
      if fault == .startsAnewOnceItHasThrown {
        state.isLoaded = true
        throw error
      }
    }
    state.isLoaded = true
  }

  /// Whether the log is still where it was opened.
  var isInPlace: Bool { state.withLock { (try? $0.log?.expectInPlace()) != nil || $0.log == nil } }

  /// - Parameter inOrder: Whether the body reads the keys in order.
  func look<Value>(inOrder: Bool = false, _ body: (borrowing Contents) throws -> Value) throws -> Value {
    try state.withLock { state in
      try load(&state)
      try state.log?.expectInPlace()
      if inOrder { state.contents.sortKeys() }
      return try body(state.contents)
    }
  }

  /// Runs the body on a copy, and again until no other change has been made meanwhile.
  func transact<Value>(
    _ body: (any StorageTransaction) throws -> Value, from origin: ChangeOrigin?
  ) throws -> Value {
    while true {
      let (version, transaction) = try state.withLock { state in
        try load(&state)
        try state.log?.expectInPlace()
        return (state.version, CopyTransaction(state.contents.entries.mapValues(\.data)))
      }
      defer { transaction.end() }
      let value = try body(transaction)
      let operations = transaction.end()
      if try operations.isEmpty || commit(operations, at: version, from: origin) { return value }
    }
  }

  /// Commits, unless there has been another commit since the version. Returns whether it has committed.
  @discardableResult
  func commit(
    _ operations: [StorageOperation], at version: Int? = nil,
    from origin: ChangeOrigin? = ChangeOrigin.current, stamped stamp: EarlyStamp? = nil
  ) throws -> Bool {
    try state.withLock { state in
      if let version, version != state.version { return false }
      try load(&state)
      // A transaction has already checked the place, before its body.
      if version == nil || fault != .looksBeforeBodiesOnly { try state.log?.expectInPlace() }
      state.version += 1
      let now = stamp?.time ?? Date()
      do {
        if fault == .repeatsRefusedWrites { try flush(&state) }
        try state.log?.expectWritable()
      } catch {
        if fault == .remembersRefusedWrites { state.contents.apply(operations, at: now) }
        if fault == .repeatsRefusedWrites { state.pending.append((now, operations)) }
        throw error
      }
      if fault == .remembersFailedWrites { state.contents.apply(operations, at: now) }
      if fault == .forgetsUntilClosed {
        state.pending.append((now, operations))
      } else {
        try state.log?.append(operations, at: now)
      }
      if fault != .remembersFailedWrites {
        state.contents.apply(operations, at: now, stamped: stamp)
      }
      feed.send(operations, from: origin)
      return true
    }
  }

  /// The values that a fault determines too early.
  func stamp(_ operations: [StorageOperation], withTime isTime: Bool) throws -> EarlyStamp {
    try state.withLock { state in
      try load(&state)
      if isTime { return EarlyStamp(time: Date()) }
      return EarlyStamp(place: state.contents.reserve(operations.count))
    }
  }

  /// A stream of later commits.
  func subscribe(_ owner: ObjectIdentifier) throws -> StorageChanges {
    try state.withLock { state in
      try state.log?.expectInPlace()
      return feed.subscribe(owner)
    }
  }

  func flush() throws { try state.withLock { try flush(&$0) } }

  private func flush(_ state: inout State) throws {
    for (time, operations) in state.pending {
      try state.log?.append(operations, at: time)
      if fault == .repeatsRefusedWrites { state.contents.apply(operations, at: time) }
    }
    state.pending = []
  }

  /// Allows others to open the place, which only a faulty engine prevents.
  func unlock() { Self.locked.withLock { $0 = $0.filter { $0.value != ObjectIdentifier(self) } } }

  private static let locked = MutexProtected<[String: ObjectIdentifier]>([:])
  private static let openings = MutexProtected<[String: Int]>([:])

  private struct Weak: Sendable { weak var shared: SharedContents? }

  /// By the bytes of the path, since strings that differ only in their normalization are equal.
  private static let open = MutexProtected<[[UInt8]: Weak]>([:])

  /// The canonical path of an existing file.
  private static func resolved(_ path: String) -> String {
    guard let resolved = realpath(path, nil) else { return path }
    defer { free(resolved) }
    return String(cString: resolved)
  }

  static func shared(at directory: URL, fault: ReferenceEngine.Fault?) throws -> SharedContents {
    try open.withLock { open in
      try LogFile.makeDirectory(directory, fault: fault)
      let spelling = directory.path(percentEncoded: false)
      let path = fault == .knowsPathsByName ? spelling : resolved(spelling)
      let bytes = Array(path.utf8)
      if fault == .keepsLock || fault == .keepsLockUntilDropped, locked.withLock({ $0[path] != nil }) {
        throw StorageError(.locked, "\(path) is locked.")
      }
      if fault == .rotatesAway,
        openings.withLock({ openings in
          if open[bytes]?.shared == nil { openings[path, default: 0] += 1 }
          return openings[path] == 4
        })
      {
        try? FileManager.default.removeItem(at: directory.appending(path: "reference.log"))
      }
      if fault != .sharesNothing, let shared = open[bytes]?.shared, shared.isInPlace { return shared }
      let shared = try SharedContents(log: LogFile(in: directory, fault: fault), fault: fault)
      open[bytes] = Weak(shared: shared)
      if fault == .keepsLock || fault == .keepsLockUntilDropped {
        locked.withLock { $0[path] = ObjectIdentifier(shared) }
      }
      return shared
    }
  }
}
