import Foundation
import StockroomCore
import Testing

@Suite struct BatchOrderTests {
  private func write(_ key: String) -> StorageOperation { .write(Data(), key: CacheKey(verbatim: key)) }

  @Test("Operations come in byte order of their keys, however long what the keys have in common")
  func order() {
    let common = String(repeating: "x", count: 20)
    let keys = ["b", "é", "a\0", "a", common + "b", common + "a", common, "e\u{301}", "B"]
    let order = BatchOrder(keys.map(write))
    #expect(!order.removesAll)
    #expect(
      order.positions.map { keys[$0] } == keys.sorted { CacheKey(verbatim: $0) < CacheKey(verbatim: $1) })
  }

  @Test("Operations on the same key stay in the order given")
  func sameKey() {
    let a = CacheKey(verbatim: "a")
    #expect(
      BatchOrder([write("b"), write("a"), .remove(key: a), write("b"), write("a")]).positions == [
        1, 2, 4, 0, 3,
      ])
  }

  @Test("What comes before the last removal of everything does not count")
  func removeAll() {
    let order = BatchOrder([write("b"), .removeAll, write("d"), .removeAll, write("c"), write("a")])
    #expect(order.removesAll)
    #expect(order.positions == [5, 4])
    #expect(BatchOrder([write("a"), .removeAll]).positions == [])
  }

  @Test("Many operations, in any order", arguments: 0..<20 as Range<UInt64>)
  func many(seed: UInt64) {
    var random = SeededRandom(seed: seed)
    let batch = (0..<500).map { _ in
      write(String(repeating: "k", count: random.next(upTo: 18)) + "\(random.next(upTo: 90))")
    }
    let expected = batch.indices.sorted {
      (batch[$0].key.map { $0.value } ?? "", $0) < (batch[$1].key.map { $0.value } ?? "", $1)
    }
    #expect(BatchOrder(batch).positions == expected)
  }
}
