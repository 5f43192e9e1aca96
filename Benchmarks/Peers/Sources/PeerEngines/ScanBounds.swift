import StockroomCore

/// The bounds of a scan.
struct ScanBounds {
  /// No key less than this is in the range. The key itself can be.
  let start: [UInt8]
  let limit: Int
  private let after: [UInt8]?
  private let upTo: [UInt8]?
  private let prefix: [UInt8]

  enum Position { case before, inside, behind }

  init(_ range: KeyRange, limit: Int?) {
    prefix = Array((range.prefix ?? "").utf8)
    after = range.after.map { Array($0.value.utf8) }
    upTo = range.upTo.map { Array($0.value.utf8) }
    self.limit = max(0, limit ?? .max)
    start = if let after, prefix.lexicographicallyPrecedes(after) { after } else { prefix }
  }

  /// The position of a key that is not less than ``start``.
  func position(of key: UnsafeRawBufferPointer) -> Position {
    if let after, key.elementsEqual(after) { return .before }
    if let upTo, upTo.lexicographicallyPrecedes(key) { return .behind }
    return prefix.isEmpty || key.starts(with: prefix) ? .inside : .behind
  }
}
