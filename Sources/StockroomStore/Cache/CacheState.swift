import StockroomCore

/// All that a cache knows, behind one lock.
///
/// What a key has is decided in this order: what was assigned and is not written yet, what is in memory, and what is in
/// storage, unless that is known to be out of date.
struct CacheState<Item: Sendable, Value: Sendable>: Sendable {
  /// Something was assigned and waits to be written.
  struct Assignment: Sendable {
    var item: Item?
    /// False from when the writing has begun.
    var isQueued = true
  }

  /// Reads of one key from storage that are under way.
  private struct Reads {
    var count = 0
    /// How often the key has changed since the first of them began.
    var changes = 0
  }

  var memory: MemoryTier<Item>
  var assigned: [KeyText: Assignment] = [:]
  /// Keys of which storage has something else than was assigned, since writing failed. Without a limit: to forget one
  /// would bring its old value back.
  var unwritten: Set<KeyText> = []
  var failures = FailureLog()

  var queue: [CacheWork<Item>] = []
  var isWriting = false

  /// Keys, or all of them, of which storage may change at any moment, without an assignment to tell.
  private var changing: Set<KeyText> = []
  private var allAreChanging = false
  private var reads: [KeyText: Reads] = [:]

  var loads = LoadTable<Value>()
  /// Sizes of what is in storage, the oldest first. Nil until they have been counted, and where there is no limit.
  var stored: RecencyList<CacheKey, Void>?
  /// Whether counting has failed, so that no write tries it again.
  var isUncountable = false

  init(memory: MemoryTier<Item>) { self.memory = memory }
}

// MARK: - Reading

extension CacheState {
  enum Lookup: Sendable {
    case known(Item?)
    /// Storage has to be asked. With a ticket, what is found may go into memory.
    case inStorage(ticket: Int?)
  }

  /// What is known of a key without asking storage.
  mutating func lookUp(_ key: KeyText) -> Item?? {
    if let assignment = assigned[key] { return .some(assignment.item) }
    if let item = memory.use(key) { return .some(item) }
    return unwritten.contains(key) ? .some(nil) : nil
  }

  /// Looks a key up, and begins a read from storage if that is necessary.
  mutating func beginRead(of key: KeyText) -> Lookup {
    if let item = lookUp(key) { return .known(item) }
    if allAreChanging || changing.contains(key) { return .inStorage(ticket: nil) }
    reads[key, default: Reads()].count += 1
    return .inStorage(ticket: reads[key]?.changes)
  }

  /// Ends a read from storage. What was found goes into memory if the key has not changed since.
  mutating func endRead(of key: KeyText, ticket: Int?, found item: Item?, size: Int) {
    guard let ticket, var reads = reads[key] else { return }
    if let item, reads.changes == ticket { memory.set(item, size: size, for: key) }
    reads.count -= 1
    self.reads[key] = reads.count == 0 ? nil : reads
  }
}

// MARK: - Changing

extension CacheState {
  /// Makes the item what the key has, to be written later, in the place that the key has in the queue already or at the end.
  mutating func assign(_ item: Item?, to key: KeyText) {
    noteChange(of: key)
    memory.remove(key)
    if let previous = assigned.updateValue(Assignment(item: item), forKey: key) {
      memory.drop(previous.item)
      if previous.isQueued { return }
    }
    queue.append(.assignment(key))
  }

  /// Makes the item what the key has, in memory alone.
  mutating func set(_ item: Item?, size: Int, for key: KeyText) {
    noteChange(of: key)
    memory.set(item, size: size, for: key)
  }

  /// From now until ``endChanging(_:)`` storage may have the old value of the key or the new one.
  mutating func beginChanging(_ key: KeyText) {
    noteChange(of: key)
    changing.insert(key)
  }

  mutating func endChanging(_ key: KeyText) {
    noteChange(of: key)
    changing.remove(key)
  }

  /// From now until ``endChangingAll()`` storage may have lost anything.
  mutating func beginChangingAll() {
    noteChangeOfAll()
    allAreChanging = true
  }

  mutating func endChangingAll() {
    noteChangeOfAll()
    allAreChanging = false
  }

  /// Forgets what is in memory, but for what has not been written yet. O(N).
  mutating func clearMemory() {
    let unwritten = unwritten
    memory.removeAll { key, _ in !unwritten.contains(key) }
  }

  /// Queues once more what could not be written.
  mutating func retry() {
    let keys = unwritten.filter { assigned[$0] == nil }
    for key in keys { assign(memory.peek(key), to: key) }
  }

  private mutating func noteChange(of key: KeyText) {
    reads[key]?.changes += 1
    loads.outdate(key)
  }

  private mutating func noteChangeOfAll() {
    for key in reads.keys { reads[key]?.changes += 1 }
  }
}
