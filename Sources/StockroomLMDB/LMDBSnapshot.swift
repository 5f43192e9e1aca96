import StockroomCLMDB
import StockroomCore

/// A snapshot of the entries: a read transaction of LMDB in progress, or the latest commit if `lock.mdb` cannot be
/// written.
///
/// The buffers that it returns point into the map, and are valid only as long as the snapshot is.
struct LMDBSnapshot: @unchecked Sendable {
  // Safe to share: with MDB_NOTLS a read transaction may be passed between threads, and has one owner.
  /// Nil if `lock.mdb` is immutable. No commit is possible then.
  let transaction: OpaquePointer?
  /// The number of the transaction that committed this state.
  let number: Int
  let tree: LMDBTree

  /// The header and the value of the key as one buffer, or nil if it is absent. O(log N).
  func entry(of key: CacheKey) throws(LMDBError) -> LMDBEntry? {
    let result: Result<LMDBEntry?, LMDBError> = key.withUTF8 { key in
      do throws(LMDBError) {
        return .success(try tree.value(of: key).map { (bytes) throws(LMDBError) in try LMDBEntry(bytes) })
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  /// Calls `body` for the entries in byte order of keys, from the first key that is not before `start`, until it
  /// returns false. O(log N + visited). Yields to other tasks from time to time.
  ///
  /// - Throws: `CancellationError` once the task has been cancelled (rule C4).
  func forEach(
    from start: [UInt8] = [], timer: inout YieldTimer,
    _ body: (_ key: UnsafeRawBufferPointer, _ entry: LMDBEntry) throws -> Bool
  ) async throws {
    var cursor = try start.withUnsafeBytes { start in try LMDBCursor(tree, from: start) }
    var portion = LMDBPortion()
    while let (key, value) = try cursor.next() {
      let entry = try LMDBEntry(value)
      guard try body(key, entry) else { return }
      portion.add(entry)
      if portion.isOver { try await timer.yieldIfDue() }
    }
  }

  /// The number of entries. O(1).
  var count: Int { Int(clamping: tree.record.entries) }
}

/// The work of a long read between two checks of the clock: about ten microseconds.
struct LMDBPortion {
  private var left = Self.size
  private static let size = 1 << 17
  /// The cost of finding an entry, in bytes copied.
  private static let entryCost = 1 << 10

  /// - Parameter entry: Nil for a key that was searched and is absent.
  mutating func add(_ entry: LMDBEntry?) { left -= Self.entryCost + (entry?.size ?? 0) }

  /// Whether the portion has ended. If so, the next one begins.
  var isOver: Bool {
    mutating get {
      if left > 0 { return false }
      left = Self.size
      return true
    }
  }
}
