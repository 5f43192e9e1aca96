import Foundation
import StockroomKitSupport
import Testing

@testable import StockroomCore

/// A thousand entries, which count the keys that are enumerated.
private final class CountingReader: EntryReader {
  static let keys = (0..<1000).map { CacheKey(verbatim: String(format: "%04d", $0)) }
  private let steps = MutexProtected(0)

  var stepsTaken: Int { steps.withLock { $0 } }

  func data(of key: CacheKey) -> Data? { Self.keys.contains(key) ? Data(key.value.utf8) : nil }

  func contains(_ key: CacheKey) -> Bool { Self.keys.contains(key) }

  func count() -> Int { Self.keys.count }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    for key in Self.keys where !(key < start) {
      steps.withLock { $0 += 1 }
      guard try body(key) else { return }
    }
  }
}

@Suite("Reads of a transaction's body")
struct TransactionOverlayTests {
  @Test("Taking the first entry repeatedly reads each entry only a few times")
  func takingFirst() throws {
    let reader = CountingReader()
    let transaction = OverlayTransaction(on: reader, nil)
    var taken: [CacheKey] = []
    while let first = try transaction.scan(.all, limit: 1).first {
      try transaction.remove(key: first.key)
      taken.append(first.key)
    }
    #expect(taken == CountingReader.keys)
    #expect(reader.stepsTaken <= 3 * CountingReader.keys.count)
    #expect(transaction.end().operations.count == taken.count)
  }

  @Test("Scans return the changes of the body, in whatever order it makes them", arguments: 0..<20)
  func scans(seed: Int) throws {
    var random = SeededRandom(seed: UInt64(seed))
    let transaction = OverlayTransaction(on: CountingReader(), nil)
    var expected = Dictionary(uniqueKeysWithValues: CountingReader.keys.map { ($0, Data($0.value.utf8)) })
    for _ in 0..<300 {
      let number = String(format: "%04d", Int.random(in: 0..<1000, using: &random))
      let key = CacheKey(verbatim: number + (Bool.random(using: &random) ? "" : "-"))
      switch Int.random(in: 0..<100, using: &random) {
      case 0..<40:
        try transaction.remove(key: key)
        expected[key] = nil
      case 40..<60:
        // Removes a run of entries, like a queue.
        for found in try transaction.scan(KeyRange(after: key, upTo: nil), limit: 30) {
          try transaction.remove(key: found.key)
          expected[found.key] = nil
        }
      case 60..<99:
        try transaction.write(Data("new".utf8), key: key)
        expected[key] = Data("new".utf8)
      default:
        try transaction.removeAll()
        expected = [:]
      }
      let limit = Int.random(in: 0...5, using: &random)
      let start = CacheKey(verbatim: String(format: "%04d", Int.random(in: 0..<1000, using: &random)))
      let found = try transaction.scan(KeyRange(after: start, upTo: nil), limit: limit)
      let keys = expected.keys.filter { start < $0 }.sorted().prefix(limit)
      #expect(found.map(\.key) == Array(keys))
      #expect(found.map(\.data) == keys.map { expected[$0] })
    }
    #expect(try transaction.allKeys() == expected.keys.sorted())
  }
}
