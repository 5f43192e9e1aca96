import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How many of the changes of a ``Store`` can be undone: see ``Store/undo()``.
public struct StoreUndoLimit: Hashable, Sendable {
  /// The number of calls and chains.
  public var calls: Int
  /// The maximum number of bytes of the records of all calls: the keys, and the encoded items before and after each call.
  ///
  /// A call whose record alone is larger cannot be undone, nor can the calls before it.
  public var bytes: Int

  /// Creates a limit.
  public init(calls: Int, bytes: Int = 64 << 20) { (self.calls, self.bytes) = (calls, bytes) }

  /// Nothing can be undone, and nothing is recorded.
  public static let none = StoreUndoLimit(calls: 0, bytes: 0)
}

/// The calls that can be undone and redone.
struct UndoHistory {
  /// Whether a call undoes or redoes an earlier one.
  enum Direction: Sendable {
    case undo
    case redo
  }

  var limit = StoreUndoLimit.none
  /// The latest call is the last element.
  private(set) var undo: [UndoRecord] = []
  private(set) var redo: [UndoRecord] = []
  private var byteCount = 0
  /// The number of entries that are held.
  private(set) var entryCount = 0
  /// Records that are no longer held, until they are taken.
  private var dropped: [UndoRecord] = []

  var isRecording: Bool { limit.calls > 0 }

  func next(_ direction: Direction) -> UndoRecord? { direction == .undo ? undo.last : redo.last }

  /// Adds the changes of a call; nil if they are too large to be held.
  mutating func add(_ record: UndoRecord?) {
    guard let record else { return clear() }
    if record.entries.isEmpty { return }
    clear(.redo)
    hold(record, for: .undo)
  }

  /// Replaces the record of a call that was reversed with the record of the reversal, in the other direction; nil if that
  /// is too large to be held.
  mutating func revert(_ direction: Direction, _ record: UndoRecord?) {
    let other: Direction = direction == .undo ? .redo : .undo
    drop(direction)
    if let record { hold(record, for: other) } else { clear(other) }
  }

  private mutating func hold(_ record: UndoRecord, for direction: Direction) {
    if direction == .undo { undo.append(record) } else { redo.append(record) }
    byteCount += record.byteCount
    entryCount += record.entries.count
    trim()
  }

  /// Removes the next record.
  mutating func drop(_ direction: Direction) {
    if let record = direction == .undo ? undo.popLast() : redo.popLast() { noteDropped([record]) }
  }

  /// Records that entries have been rewritten in the newest version, which does not count as a change.
  ///
  /// O(records · rewritten entries): the entries of a large record are looked up in an index, since this is done on the
  /// main actor for each batch.
  mutating func note(_ replaced: [CacheKey: (old: Data, new: Data)]) {
    // The nearest record that contains the entry, in each direction, is the one whose expected bytes must be updated.
    var (forUndo, forRedo) = (replaced, replaced)
    for index in undo.indices.reversed() {
      if forUndo.isEmpty { break }
      byteCount += undo[index].note(&forUndo)
    }
    for index in redo.indices.reversed() {
      if forRedo.isEmpty { break }
      byteCount += redo[index].note(&forRedo)
    }
    trim()
  }

  mutating func clear() {
    clear(.undo)
    clear(.redo)
  }

  private mutating func clear(_ direction: Direction) {
    noteDropped(direction == .undo ? exchange(&undo, with: []) : exchange(&redo, with: []))
  }

  /// Removes the records beyond the limit, the oldest first.
  mutating func trim() {
    var count = numberBeyondLimit(undo)
    if count > 0 {
      noteDropped(Array(undo.prefix(count)))
      undo.removeFirst(count)
    }
    count = numberBeyondLimit(redo)
    if count > 0 {
      noteDropped(Array(redo.prefix(count)))
      redo.removeFirst(count)
    }
  }

  /// How many of these records, the oldest first, must be removed.
  private func numberBeyondLimit(_ records: [UndoRecord]) -> Int {
    var (calls, bytes) = (undo.count + redo.count, byteCount)
    var number = 0
    while number < records.count, calls > limit.calls || bytes > limit.bytes {
      calls -= 1
      bytes -= records[number].byteCount
      number += 1
    }
    return number
  }

  private mutating func noteDropped(_ records: [UndoRecord]) {
    for record in records {
      byteCount -= record.byteCount
      entryCount -= record.entries.count
    }
    dropped += records
  }

  /// The records that have been removed since the last call, to be released by the caller.
  mutating func takeDropped() -> [UndoRecord] { exchange(&dropped, with: []) }
}
