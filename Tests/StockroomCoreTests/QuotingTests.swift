import StockroomCore
import Testing

@Suite("Quoting") struct QuotingTests {
  @Test("A scalar is replaced whatever follows it")
  func replacing() {
    func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }
    #expect(bytes("it's ''".replacingScalar("'", with: "''")) == bytes("it''s ''''"))
    #expect(bytes("it'\u{301}s".replacingScalar("'", with: "''")) == bytes("it''\u{301}s"))
    #expect(bytes("\"\u{200d}\u{fe0f}".replacingScalar("\"", with: "\\\"")) == bytes("\\\"\u{200d}\u{fe0f}"))
    #expect(bytes("e\u{301} \r\n".replacingScalar("'", with: "")) == bytes("e\u{301} \r\n"))
    #expect("".replacingScalar("'", with: "x").isEmpty)
  }
}
