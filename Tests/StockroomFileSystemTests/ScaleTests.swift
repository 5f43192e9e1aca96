import Foundation
import StockroomCore
import StockroomFileSystem
import Testing

@Suite("Large requests")
struct ScaleTests {
  @Test("A batch of 10,000 entries is written, listed in order, and removed")
  func largeBatch() async throws {
    let place = try TestDirectory()
    let engine = try place.open()
    let keys = (0..<10_000).map { CacheKey(verbatim: "entry/\($0)") }
    try await engine.write(keys.map { ($0, data($0.value)) })
    #expect(try await engine.keyCount() == keys.count)
    #expect(try await engine.readAllEntries().map(\.key) == keys)
    try await engine.apply([.removeAll, .write(data("1"), key: "last")])
    #expect(try await engine.allKeys() == ["last"])
  }

  @Test("A million keys in one request are answered in order")
  func largeRequest() async throws {
    let place = try TestDirectory()
    let engine = try place.open(.process)
    try await engine.write([("a", data("1")), ("b", data("2"))])
    let keys = (0..<1_000_000).map {
      CacheKey(verbatim: $0 % 1000 == 7 ? "b" : $0 % 1000 == 5 ? "a" : "no\($0)")
    }
    let values = try await engine.read(keys: keys)
    #expect(values.count == 2000)
    #expect(values.prefix(3) == [data("1"), data("2"), data("1")])
  }

  @Test("A value of 64 MiB comes back as it was")
  func largeValue() async throws {
    let place = try TestDirectory()
    let engine = try place.open()
    let value = Data((0..<(64 << 20)).lazy.map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) })
    try await engine.write(value, key: "large")
    #expect(try await engine.read(key: "large") == value)
  }
}
