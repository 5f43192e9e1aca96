import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How much of what a ``Store`` has done can be undone: see ``Store/undo()``.
public struct StoreUndoLimit: Hashable, Sendable {
  /// The number of calls and chains.
  public var calls: Int
  /// The number of bytes of keys and encoded items that are held for that, before and after each call.
  ///
  /// A call that changes more cannot be undone, nor can those before it.
  public var bytes: Int

  /// Creates a limit.
  public init(calls: Int, bytes: Int = 64 << 20) { (self.calls, self.bytes) = (calls, bytes) }

  /// Nothing can be undone, and nothing is recorded.
  public static let none = StoreUndoLimit(calls: 0, bytes: 0)
}

/// What can be undone and redone.
struct UndoHistory {
  /// Which of the two a call is to do.
  enum Direction: Sendable {
    case undo
    case redo
  }

  var limit = StoreUndoLimit.none
  /// The latest is the last.
  private(set) var undo: [UndoRecord] = []
  private(set) var redo: [UndoRecord] = []
  private var byteCount = 0

  var isRecording: Bool { limit.calls > 0 }

  /// The number of entries that are held.
  var entryCount: Int { (undo + redo).reduce(0) { $0 + $1.entries.count } }

  func next(_ direction: Direction) -> UndoRecord? { direction == .undo ? undo.last : redo.last }

  /// Adds what a call has changed; nil if that is too much to be held.
  mutating func add(_ record: UndoRecord?) {
    guard let record else { return clear() }
    if record.entries.isEmpty { return }
    for outdated in redo { byteCount -= outdated.byteCount }
    redo = []
    undo.append(record)
    byteCount += record.byteCount
    trim()
  }

  /// Replaces a record by that of its reversal; nil if that is too much to be held.
  mutating func revert(_ direction: Direction, _ record: UndoRecord?) {
    drop(direction)
    guard let record else {
      if direction == .undo { redo = [] } else { undo = [] }
      byteCount = (undo + redo).reduce(0) { $0 + $1.byteCount }
      return
    }
    if direction == .undo { redo.append(record) } else { undo.append(record) }
    byteCount += record.byteCount
    trim()
  }

  /// Removes the record that is next.
  mutating func drop(_ direction: Direction) {
    let dropped = direction == .undo ? undo.popLast() : redo.popLast()
    byteCount -= dropped?.byteCount ?? 0
  }

  /// Notes that entries have been rewritten in the newest version, which is no change. O(entries).
  mutating func note(_ replaced: [CacheKey: (old: Data, new: Data)]) {
    // The next record of each entry, in both directions, is about what is stored now.
    var (forUndo, forRedo) = (replaced, replaced)
    for index in undo.indices.reversed() { undo[index].note(&forUndo) }
    for index in redo.indices.reversed() { redo[index].note(&forRedo) }
    byteCount = (undo + redo).reduce(0) { $0 + $1.byteCount }
    trim()
  }

  mutating func clear() { self = UndoHistory(limit: limit) }

  /// Removes what is over the limit, the oldest first.
  mutating func trim() {
    while undo.count + redo.count > limit.calls || byteCount > limit.bytes {
      guard let oldest = undo.isEmpty ? redo.first : undo.first else { return }
      byteCount -= oldest.byteCount
      if undo.isEmpty { redo.removeFirst() } else { undo.removeFirst() }
    }
  }
}
