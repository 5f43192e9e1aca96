import StockroomCore

/// A text whose last line is a checksum of those before it.
enum ChecksummedText {
  static func adding(to text: String) -> String {
    "\(text)\n\(CRC32C.checksum(Array(text.utf8)))\n"
  }

  /// The text without its checksum, or nil if that is wrong.
  static func verifying(_ checked: String) -> String? {
    guard let end = checked.dropLast().lastIndex(of: "\n") else { return nil }
    let text = String(checked[..<end])
    return adding(to: text).utf8.elementsEqual(checked.utf8) ? text : nil
  }
}
