import Foundation
import StockroomCore

/// One JSON object in one line, with its keys in alphabetical order. Control characters and line separators are written
/// as JSON escapes, so that a terminal does not interpret them.
func jsonLine(_ value: some Encodable) throws -> String {
  let encoder = JSONEncoder()
  encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
  var line = String.UnicodeScalarView()
  for scalar in String(decoding: try encoder.encode(value), as: UTF8.self).unicodeScalars {
    // The encoder escapes only the control characters below U+0020. JSON can contain the characters below only in
    // strings.
    switch scalar.value {
    case 0x7F...0x9F, 0x2028, 0x2029:
      let digits = String(scalar.value, radix: 16)
      line.append(
        contentsOf: (#"\u"# + String(repeating: "0", count: 4 - digits.count) + digits).unicodeScalars)
    default: line.append(scalar)
    }
  }
  return String(line) + "\n"
}

/// An entry in JSON. If the bytes of the value are UTF-8, `value` contains them as text; otherwise `base64` contains
/// them encoded.
struct EntryJSON: Encodable {
  let key: String
  var size: Int?
  var createdAt: String?
  var updatedAt: String?
  var value: String?
  var base64: String?

  init(_ entry: ListedEntry, hasValue: Bool) {
    key = entry.key.value
    if let times = entry.times {
      size = entry.data.count
      (createdAt, updatedAt) = (times.created.inUTC, times.updated.inUTC)
    }
    guard hasValue else { return }
    value = String(validating: entry.data, as: UTF8.self)
    if value == nil { base64 = entry.data.base64EncodedString() }
  }
}

extension ListedEntry {
  /// The entry as a line of text: the size in bytes and the times, unless ``times`` is nil, then the key and, if
  /// `hasValue` is true, the value.
  func text(hasValue: Bool) -> String {
    let columns = times.map { times in
      let size = String(data.count)
      let blanks = String(repeating: " ", count: max(0, 10 - size.count))
      return "\(blanks)\(size)  \(times.created.inUTC)  \(times.updated.inUTC)  "
    }
    return (columns ?? "") + key.value.escaped + (hasValue ? "\t" + data.escaped : "") + "\n"
  }
}

extension Date {
  /// The time in UTC, as in 2026-01-31T12:00:00.123Z.
  var inUTC: String { formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true)) }
}
