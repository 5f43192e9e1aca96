/// The data that an engine needs to scan a ``KeyRange`` in byte order: where to start, and when to stop.
@usableFromInline package struct KeyRangeCursor: Sendable {
  @usableFromInline package enum Position: Sendable {
    case before, inside, behind
  }

  /// No key of the range comes before these bytes. Empty if the range has no lower bound.
  package let start: [UInt8]
  private let prefix: [UInt8]
  private let after: [UInt8]?
  private let upTo: [UInt8]?

  package init(_ range: KeyRange) {
    let prefix = Array((range.prefix ?? "").utf8)
    let after = range.after.map { Array($0.value.utf8) }
    self.prefix = prefix
    self.after = after
    self.upTo = range.upTo.map { Array($0.value.utf8) }
    start = if let after, prefix.lexicographicallyPrecedes(after) { after } else { prefix }
  }

  /// The position of these bytes. Once a key is ``Position/behind``, so is every later one.
  @usableFromInline package func position(of key: UnsafeRawBufferPointer) -> Position {
    if let after, after.withUnsafeBytes({ key.compare(with: $0) }) <= 0 { return .before }
    if let upTo, upTo.withUnsafeBytes({ key.compare(with: $0) }) > 0 { return .behind }
    if prefix.isEmpty { return .inside }
    return prefix.withUnsafeBytes { prefix in
      if key.count >= prefix.count,
        UnsafeRawBufferPointer(rebasing: key[..<prefix.count]).compare(with: prefix) == 0
      {
        return .inside
      }
      return key.compare(with: prefix) < 0 ? .before : .behind
    }
  }

  package func position(of key: CacheKey) -> Position {
    key.withUTF8 { position(of: $0) }
  }
}
