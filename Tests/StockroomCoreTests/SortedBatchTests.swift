import Foundation
import StockroomCore
import StockroomKitSupport
import Testing

@Suite struct SortedBatchTests {
  private func write(_ key: String) -> StorageOperation { .write(Data(), key: CacheKey(verbatim: key)) }

  /// Each key with the indices of its operations.
  private func contents(of batch: SortedBatch) -> [String] {
    var contents: [String] = []
    batch.forEachKey { key, positions in
      contents.append("\(String(decoding: key, as: UTF8.self)) \(Array(positions))")
    }
    return contents
  }

  @Test("Keys are in byte order, however long their common prefix")
  func order() {
    let common = String(repeating: "x", count: 20)
    let keys = ["b", "é", "a\0", "a", common + "b", common + "a", common, "e\u{301}", "B"]
    let batch = SortedBatch(joining: [keys.map(write)])
    #expect(!batch.removesAll)
    let sorted = keys.indices.sorted { CacheKey(verbatim: keys[$0]) < CacheKey(verbatim: keys[$1]) }
    #expect(contents(of: batch) == sorted.map { "\(keys[$0]) [\($0)]" })
  }

  @Test("Operations on the same key stay together, in the given order")
  func sameKey() {
    let a = CacheKey(verbatim: "a")
    let batch = SortedBatch(joining: [
      [write("b"), write("a"), .remove(key: a)], [], [write("b"), write("a")],
    ])
    #expect(batch.operations.count == 5)
    #expect(contents(of: batch) == ["a [1, 2, 4]", "b [0, 3]"])
  }

  @Test("Operations before the last removal of everything are ignored")
  func removeAll() {
    let batch = SortedBatch(joining: [
      [write("b"), .removeAll], [write("d"), .removeAll, write("c"), write("a")],
    ])
    #expect(batch.removesAll)
    #expect(contents(of: batch) == ["a [5]", "c [4]"])
    #expect(contents(of: SortedBatch(joining: [[write("a"), .removeAll]])) == [])
    #expect(contents(of: SortedBatch(joining: [])) == [])
  }

  @Test("Many operations are sorted, whatever their order", arguments: 0..<20 as Range<UInt64>)
  func many(seed: UInt64) {
    var random = SeededRandom(seed: seed)
    let keys = (0..<500).map { _ in
      String(repeating: "k", count: random.next(upTo: 18)) + "\(random.next(upTo: 90))"
    }
    let expected = Dictionary(grouping: keys.indices) { keys[$0] }.sorted { $0.key < $1.key }
    let batch = SortedBatch(joining: [keys.map(write)])
    #expect(contents(of: batch) == expected.map { "\($0.key) \($0.value)" })
  }
}
