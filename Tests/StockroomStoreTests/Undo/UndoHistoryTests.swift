import Foundation
import StockroomCore
import Testing

@testable import StockroomStore

@Suite("The undo history") struct UndoHistoryTests {
  /// A record with the given number of entries of 10 bytes.
  private func record(_ count: Int) -> UndoRecord {
    var record = UndoRecord()
    for number in 0..<count {
      let key = CacheKey(verbatim: "key \(number % 10)")
      record.append(UndoRecord.Entry(key: key, before: nil, after: Data("12345".utf8), isMoved: false))
    }
    return record
  }

  @Test("Each record is either held or returned for release, and the newest are held up to the limit")
  func dropped() {
    var history = UndoHistory()
    history.limit = StoreUndoLimit(calls: 5, bytes: 200)
    var (added, dropped) = (0, 0)
    for _ in 0..<10_000 {
      let next = record(.random(in: 1...6))
      switch Int.random(in: 0..<20) {
      case 0: history.add(nil)
      case 1: history.drop(.undo)
      case 2: history.clear()
      case 3..<7 where history.next(.undo) != nil:
        history.revert(.undo, next)
        added += next.entries.count
      case 7..<10 where history.next(.redo) != nil:
        history.revert(.redo, next)
        added += next.entries.count
      case 10 where history.next(.redo) != nil: history.revert(.redo, nil)
      default:
        history.add(next)
        added += next.entries.count
        #expect(history.undo.last?.entries.count == next.entries.count && history.redo.isEmpty)
      }
      dropped += history.takeDropped().reduce(0) { $0 + $1.entries.count }
      let held = history.undo + history.redo
      #expect(history.entryCount == held.reduce(0) { $0 + $1.entries.count })
      #expect(added == dropped + history.entryCount)
      #expect(held.count <= 5 && held.reduce(0) { $0 + $1.byteCount } <= 200)
    }
  }

  @Test("A rewritten entry is updated in the next record of the entry in each direction, and counted")
  func rewritten() {
    var history = UndoHistory()
    history.limit = StoreUndoLimit(calls: 5, bytes: 30)
    history.add(record(1))
    history.add(record(1))
    history.add(record(1))
    let key = CacheKey(verbatim: "key 0")
    history.note([key: (old: Data("12345".utf8), new: Data("123456789".utf8))])
    // The oldest record no longer fits.
    let values = history.undo.flatMap(\.entries).compactMap(\.after)
    #expect(values == [Data("12345".utf8), Data("123456789".utf8)])
    #expect(history.takeDropped().count == 1)
  }

  @Test("A rewritten entry is found by key in a large record, as in one without an index")
  func rewrittenInLarge() throws {
    var record = UndoRecord()
    for number in 0..<1_000 {
      let key = CacheKey(verbatim: "key \(number)")
      record.append(UndoRecord.Entry(key: key, before: nil, after: Data("\(number)".utf8), isMoved: false))
    }
    var table = ItemTable<Note>()
    // In a different order than in the record.
    for number in [7, 3, 900] {
      let step = KeyedStep.insert([
        (key: CacheKey(verbatim: "key \(number)"), item: Note(id: "key \(number)"))
      ])
      _ = table.apply([step])
    }
    var indexed = record
    indexed.sort(as: table, isIndexed: true)
    record.sort(as: table, isIndexed: false)
    // Only the index makes it certain that not all entries are examined.
    let positions = try #require(indexed.positions)
    #expect(positions.count == 1_000 && record.positions == nil)
    #expect(positions.allSatisfy { indexed.entries[$1].key == $0 })
    let rewritten: [CacheKey: (old: Data, new: Data)] = [
      CacheKey(verbatim: "key 3"): (old: Data("3".utf8), new: Data("three".utf8)),
      CacheKey(verbatim: "key 500"): (old: Data("not this".utf8), new: Data("new".utf8)),
      CacheKey(verbatim: "key 999"): (old: Data("999".utf8), new: Data("last".utf8)),
      CacheKey(verbatim: "absent"): (old: Data(), new: Data("new".utf8)),
    ]
    var (left, leftUnindexed) = (rewritten, rewritten)
    let growth = (indexed.note(&left), record.note(&leftUnindexed))
    #expect(growth.0 == 5 && growth.1 == 5)
    #expect(Array(left.keys) == [CacheKey(verbatim: "absent")] && left.count == leftUnindexed.count)
    #expect(indexed.entries.map(\.after) == record.entries.map(\.after))
    #expect(indexed.byteCount == record.byteCount)
  }
}
