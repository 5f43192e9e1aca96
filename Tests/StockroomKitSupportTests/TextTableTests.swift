import StockroomKitSupport
import Testing

@Suite("Tables") struct TextTableTests {
  @Test("A table survives cells of any content")
  func cells() {
    let table = TextTable(header: ["a", "b"], rows: [["x|y", "é\n"], ["longer than the header", ""]])
    #expect(table.markdown.contains("| x\\|y | é  |"))
    #expect(table.text.split(separator: "\n").last == "longer than the header")
  }

  @Test("Words are aligned to the left, figures to the right")
  func alignment() {
    let table = TextTable(header: ["rule", "promise", "A"], rows: [["K1", "keys", "12"]], wordColumns: 2)
    #expect(table.text == "rule  promise   A\n────  ───────  ──\nK1    keys     12")
    #expect(table.markdown.contains("| --- | --- | ---: |"))
  }
}
