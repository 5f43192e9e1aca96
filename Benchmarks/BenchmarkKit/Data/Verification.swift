#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// An engine that loses or truncates values would be fast. Therefore the values that an engine returns are
// compared with those that were written, outside of the measured time.

extension StorageEngine {
  /// Throws unless the engine contains these entries and no others.
  func verifyContents(_ expected: [(key: CacheKey, data: Data)]) async throws {
    try BenchmarkKit.verify(count: try await keyCount(), is: expected.count)
    try await verifyContains(expected)
  }

  /// Throws unless the engine contains these entries. It may contain others.
  func verifyContains(_ expected: [(key: CacheKey, data: Data)]) async throws {
    let found = try await readDataAndKeys(keys: expected.map(\.key))
    try BenchmarkKit.verify(count: found.count, is: expected.count)
    for (found, expected) in zip(found, expected) {
      guard found.key == expected.key else {
        throw WrongAnswer("the key \(expected.key) was requested and \(found.key) returned")
      }
      try BenchmarkKit.verify(found.data, is: expected.data, under: expected.key)
    }
  }
}

extension BenchmarkRecords {
  /// Throws unless this is the value of the record with this index.
  func verify(_ value: Data?, isRecord index: Int) throws {
    let (key, data) = all[index]
    guard let value else { throw WrongAnswer("the key \(key) was written and has no value") }
    try BenchmarkKit.verify(value, is: data, under: key)
  }

  /// Throws unless these are the records, each of them once, in any order.
  func verify(_ entries: [(key: CacheKey, data: Data)]) throws {
    try BenchmarkKit.verify(count: entries.count, is: count)
    var expected = Dictionary(all.map { ($0.key, $0.data) }, uniquingKeysWith: { first, _ in first })
    for (key, data) in entries {
      guard let value = expected.removeValue(forKey: key) else {
        throw WrongAnswer("the key \(key) was returned, which was not written or was returned twice")
      }
      try BenchmarkKit.verify(data, is: value, under: key)
    }
  }
}

func verify(count: Int, is expected: Int) throws {
  guard count == expected else {
    throw WrongAnswer("the number of entries is \(count) instead of \(expected)")
  }
}

private func verify(_ value: Data, is expected: Data, under key: CacheKey) throws {
  guard value == expected else {
    throw WrongAnswer(
      "the value under the key \(key), \(value.count) bytes, is not the one of \(expected.count) bytes that "
        + "was written")
  }
}
