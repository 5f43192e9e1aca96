import StockroomCore
import Testing

@Suite struct KeyRangeTests {
  func keys(in range: KeyRange) -> [String] {
    ["a", "a\0", "a/", "a/1", "a/2", "a/22", "a0", "b", "é"].filter { range.contains(CacheKey(verbatim: $0)) }
  }

  @Test("Every key is in the range of all")
  func all() { #expect(keys(in: .all).count == 9) }

  @Test("A prefix is compared byte for byte")
  func prefix() {
    #expect(keys(in: .prefix("a/")) == ["a/", "a/1", "a/2", "a/22"])
    #expect(keys(in: .prefix("e\u{301}")) == [])
    #expect(keys(in: .prefix("")).count == 9)
  }

  @Test("The lower bound is excluded and the upper one included")
  func bounds() {
    let range = KeyRange(after: CacheKey(verbatim: "a/"), upTo: CacheKey(verbatim: "a/22"))
    #expect(keys(in: range) == ["a/1", "a/2", "a/22"])
  }

  @Test("A key must have the prefix and be within the bounds")
  func both() {
    var range = KeyRange.prefix("a/")
    range.after = CacheKey(verbatim: "a/1")
    #expect(keys(in: range) == ["a/2", "a/22"])
    range.after = CacheKey(verbatim: "a")
    range.upTo = CacheKey(verbatim: "a/1")
    #expect(keys(in: range) == ["a/", "a/1"])
    range.after = CacheKey(verbatim: "b")
    range.upTo = nil
    #expect(keys(in: range) == [])
  }

  @Test("Ranges are equal byte for byte")
  func identity() {
    #expect(KeyRange.prefix("\u{e9}") != .prefix("e\u{301}"))
    #expect(Set([KeyRange.prefix("\u{e9}"), .prefix("e\u{301}"), .all, .prefix("")]).count == 4)
  }

  @Test("A bound that is not a key is refused")
  func invalidBounds() throws {
    let invalid = CacheKey(verbatim: "")
    #expect(throws: StorageError.self) { try KeyRange(after: invalid, upTo: nil).validate() }
    #expect(throws: StorageError.self) { try KeyRange(after: nil, upTo: invalid).validate() }
    try KeyRange(after: CacheKey(verbatim: "a"), upTo: nil).validate()
  }
}
