import StockroomCore

/// The state of a cache, behind one lock.
///
/// The value of a key is looked up in this order: assignments that are not written yet, memory, and storage unless its
/// value is known to be out of date.
struct CacheState<Item: Sendable, Value: Sendable>: Sendable {
  /// An assignment that has not been written yet.
  struct Assignment: Sendable {
    var item: Item?
    /// False once it is being written.
    var isQueued = true
  }

  /// Reads of one key from storage that are in progress.
  private struct Reads {
    var count = 0
    /// The number of changes of the key since the first of them began.
    var changes = 0
  }

  var memory: MemoryTier<Item>
  var assigned: [EncodedKey: Assignment] = [:]
  /// Keys whose stored value is out of date because a write failed. Their number is not limited: if a key were dropped, its
  /// old value would reappear.
  var unwritten: Set<EncodedKey> = []
  var failures = FailureLog()

  var queue: [QueuedWrite<Item>] = []
  var isWriting = false
  /// The number of changes that a caller waits for, queued or being written, by key.
  var changesUnderWay: [EncodedKey: Int] = [:]
  /// The number of calls in progress that remove everything.
  var removalsUnderWay = 0

  /// Keys whose stored value is being changed by a call that waits for the change, not by an assignment.
  private var changing: Set<EncodedKey> = []
  private var allAreChanging = false
  /// Keys that others have changed while a change of them was being written.
  var supersededKeys: Set<EncodedKey> = []
  private var reads: [EncodedKey: Reads] = [:]

  var loads = SingleFlightLoads<Value>()
  /// The sizes of the entries in storage, the least recently written first. Nil until they have been loaded, and without
  /// a limit.
  var storedSizes: LRUList<CacheKey, Void>?
  /// The keys of the entries that others have changed since their sizes were loaded or measured. Empty without a limit. Nil if
  /// all sizes must be loaded again.
  private(set) var unmeasuredKeys: Set<CacheKey>? = []
  /// Whether loading the sizes has failed, in which case writes do not retry it.
  var hasLoadingSizesFailed = false

  init(memory: MemoryTier<Item>) { self.memory = memory }
}

// MARK: - Sizes of stored entries

extension CacheState {
  /// The maximum number of keys whose sizes are measured one by one.
  private static var maximumUnmeasuredCount: Int { 10_000 }

  /// Forgets all sizes, so that the next write loads them again.
  mutating func forgetSizes() {
    storedSizes = nil
    unmeasuredKeys = nil
  }

  /// Records that others have changed these entries, which are now the most recently written ones.
  mutating func noteForeignChange(of keys: [CacheKey]) {
    for key in keys { _ = storedSizes?.use(key) }
    unmeasuredKeys?.formUnion(keys)
    if unmeasuredKeys.map({ $0.count > Self.maximumUnmeasuredCount }) ?? true { forgetSizes() }
  }

  /// Returns ``unmeasuredKeys``, and clears them. Nil if all sizes must be loaded.
  mutating func beginMeasuring() -> Set<CacheKey>? {
    defer { unmeasuredKeys = [] }
    return storedSizes == nil ? nil : unmeasuredKeys
  }
}

// MARK: - Reading

extension CacheState {
  enum Lookup: Sendable {
    case known(Item?)
    /// Storage must be read. The version is for ``endRead(of:version:found:size:)``; if it is nil, the result must not stay
    /// in memory.
    case inStorage(version: Int?)
  }

  /// The value of a key if it is known without reading storage.
  mutating func lookUp(_ key: EncodedKey) -> Item?? {
    if let assignment = assigned[key] { return .some(assignment.item) }
    if let item = memory.use(key) { return .some(item) }
    return unwritten.contains(key) ? .some(nil) : nil
  }

  /// Looks a key up, and begins a read from storage if that is necessary.
  mutating func beginRead(of key: EncodedKey) -> Lookup {
    if let item = lookUp(key) { return .known(item) }
    if allAreChanging || changing.contains(key) { return .inStorage(version: nil) }
    return .inStorage(version: beginWatching(key))
  }

  /// Counts the changes of a key until ``endRead(of:version:found:size:)``. Returns the number so far.
  mutating func beginWatching(_ key: EncodedKey) -> Int {
    reads[key, default: Reads()].count += 1
    return reads[key, default: Reads()].changes
  }

  func isUnchanged(_ key: EncodedKey, since version: Int) -> Bool { reads[key]?.changes == version }

  /// Ends a read from storage. The result is kept in memory if the key has not changed since.
  mutating func endRead(of key: EncodedKey, version: Int?, found item: Item?, size: Int) {
    guard let version, var reads = reads[key] else { return }
    if let item, reads.changes == version { memory.set(item, size: size, for: key) }
    reads.count -= 1
    self.reads[key] = reads.count == 0 ? nil : reads
  }
}

// MARK: - Changing

extension CacheState {
  /// Sets the item of a key and queues the write, unless one is queued for the key already.
  mutating func assign(_ item: Item?, to key: EncodedKey) {
    noteChange(of: key)
    memory.remove(key)
    if let previous = assigned.updateValue(Assignment(item: item), forKey: key) {
      memory.drop(previous.item)
      if previous.isQueued { return }
    }
    queue.append(.assignment(key))
  }

  /// Queues a change that a caller waits for.
  mutating func enqueue(_ change: CacheChange<Item>) {
    noteChange(of: change.key)
    changesUnderWay[change.key, default: 0] += 1
    queue.append(.change(change))
  }

  /// Sets the item of a key in memory only.
  mutating func set(_ item: Item?, size: Int, for key: EncodedKey) {
    noteChange(of: key)
    memory.set(item, size: size, for: key)
  }

  /// Storage may have the old value of the key or the new one until ``endChanging(_:)``.
  mutating func beginChanging(_ key: EncodedKey) {
    noteChange(of: key)
    changing.insert(key)
  }

  mutating func endChanging(_ key: EncodedKey) {
    noteChange(of: key)
    changing.remove(key)
  }

  /// Storage may have lost any entry until ``endChangingAll()``.
  mutating func beginChangingAll() {
    noteChangeOfAll()
    allAreChanging = true
  }

  mutating func endChangingAll() {
    noteChangeOfAll()
    allAreChanging = false
  }

  /// Removes all entries from memory that have been written. O(U), where U writes have failed.
  mutating func clearMemory() { memory.removeAll(except: unwritten) }

  /// Removes these keys, which others have changed in storage, from memory. Values that are not written yet, or whose write
  /// has failed, stay.
  mutating func forget(_ keys: [EncodedKey]) {
    for key in keys {
      noteChange(of: key)
      if isBeingWritten(key) { supersededKeys.insert(key) }
      if !unwritten.contains(key) { memory.remove(key) }
    }
  }

  /// Removes all values from memory except those whose write has failed. O(U + W), where U writes have failed and W are in
  /// progress.
  mutating func forgetAll() {
    noteChangeOfAll()
    supersededKeys.formUnion(changing)
    for key in assigned.keys where isBeingWritten(key) { supersededKeys.insert(key) }
    clearMemory()
  }

  private func isBeingWritten(_ key: EncodedKey) -> Bool {
    changing.contains(key) || assigned[key]?.isQueued == false
  }

  /// Queues the failed writes again, except for keys for which a newer change is queued or being written.
  mutating func retryFailedWrites() {
    guard removalsUnderWay == 0 else { return }
    let keys = unwritten.filter { assigned[$0] == nil && changesUnderWay[$0] == nil }
    for key in keys { assign(memory.peek(key), to: key) }
  }

  private mutating func noteChange(of key: EncodedKey) {
    reads[key]?.changes += 1
    loads.invalidate(key)
  }

  private mutating func noteChangeOfAll() {
    for key in reads.keys { reads[key]?.changes += 1 }
  }
}
