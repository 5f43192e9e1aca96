#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The nesting depth of a binary property list, and its size after every reference to an object has been decoded to a
/// copy of it.
///
/// Objects refer to others by number, and several may refer to the same one. So a few bytes can describe a list of
/// infinite depth, and a few megabytes one of many gigabytes, which Foundation would decode until the stack or the
/// memory is exhausted.
///
/// A list consists of the objects, a table of their offsets, and a trailer of 32 bytes, which contains the offset of
/// the table.
struct BinaryListSize {
  /// Why a list must not be decoded.
  enum Defect: Error {
    /// The data are not a binary list, or are one that no program writes.
    case malformed
    /// Objects contain others to a greater depth than the limit, or contain themselves.
    case tooDeep
    case tooLarge
  }

  private struct Extent {
    var depth: Int
    var size: Int
  }

  /// The minimum number of bytes that a reference takes in the decoded list.
  static let sizeOfReference = 8
  private static let trailerSize = 32

  private let bytes: UnsafeRawBufferPointer
  private let maximumDepth: Int
  private let maximumSize: Int
  private let offsetSize: Int
  private let referenceSize: Int
  private let objectCount: Int
  private let table: Int
  /// The extents of the containers that have been measured, by object number.
  private var measured: [Int: Extent] = [:]

  /// Throws a ``Defect`` if the list must not be decoded. O(bytes).
  static func check(_ list: Data, maximumDepth: Int, maximumSize: Int) throws(Defect) {
    let defect = list.withUnsafeBytes { bytes -> Defect? in
      do throws(Defect) {
        var list = try BinaryListSize(bytes, maximumDepth, maximumSize)
        _ = try list.extent(of: list.topObject(), under: 0)
        return nil
      } catch {
        return error
      }
    }
    if let defect { throw defect }
  }

  private init(_ bytes: UnsafeRawBufferPointer, _ maximumDepth: Int, _ maximumSize: Int) throws(Defect) {
    guard bytes.count > Self.trailerSize else { throw .malformed }
    self.bytes = bytes
    self.maximumDepth = maximumDepth
    self.maximumSize = maximumSize
    let trailer = bytes.count - Self.trailerSize
    (offsetSize, referenceSize) = (Int(bytes[trailer + 6]), Int(bytes[trailer + 7]))
    objectCount = try Self.number(bytes, at: trailer + 8, size: 8)
    table = try Self.number(bytes, at: trailer + 24, size: 8)
    guard 1...8 ~= offsetSize, 1...8 ~= referenceSize, table <= trailer,
      objectCount <= (trailer - table) / offsetSize
    else { throw .malformed }
  }

  private func topObject() throws(Defect) -> Int {
    try number(at: bytes.count - Self.trailerSize + 16, size: 8)
  }

  /// - Parameter depth: The number of objects that contain this one.
  private mutating func extent(of object: Int, under depth: Int) throws(Defect) -> Extent {
    if let known = measured[object] {
      guard depth + known.depth <= maximumDepth else { throw .tooDeep }
      return known
    }
    guard object < objectCount else { throw .malformed }
    let offset = try number(at: table + object * offsetSize, size: offsetSize)
    guard offset < table else { throw .malformed }
    let kind = bytes[offset] >> 4
    switch kind {
    case 0x4, 0x5: return try Extent(depth: 0, size: count(at: offset).value)
    case 0x6: return try Extent(depth: 0, size: 2 * min(count(at: offset).value, bytes.count))
    case 0xA, 0xC, 0xD: break
    default: return Extent(depth: 0, size: 0)
    }
    let (elements, first) = try count(at: offset)
    let perElement = kind == 0xD ? 2 : 1
    guard depth < maximumDepth else { throw .tooDeep }
    guard elements <= (table - first) / (perElement * referenceSize) else { throw .malformed }
    var extent = Extent(depth: 1, size: 0)
    for index in 0..<elements * perElement {
      let reference = try number(at: first + index * referenceSize, size: referenceSize)
      let contained = try self.extent(of: reference, under: depth + 1)
      extent.depth = max(extent.depth, contained.depth + 1)
      extent.size += contained.size + Self.sizeOfReference
      guard extent.size <= maximumSize else { throw .tooLarge }
    }
    measured[object] = extent
    return extent
  }

  /// The number of bytes or elements of an object, and the offset at which they begin. The lower half of the first byte
  /// is that number or, if all of its bits are set, an integer object with the number follows.
  private func count(at offset: Int) throws(Defect) -> (value: Int, end: Int) {
    let short = Int(bytes[offset] & 0xF)
    if short < 0xF { return (short, offset + 1) }
    guard offset + 1 < table, bytes[offset + 1] >> 4 == 0x1 else { throw .malformed }
    let size = 1 << Int(bytes[offset + 1] & 0xF)
    guard size <= 8, offset + 2 + size <= table else { throw .malformed }
    let value = try number(at: offset + 2, size: size)
    guard value <= bytes.count else { throw .malformed }
    return (value, offset + 2 + size)
  }

  private func number(at offset: Int, size: Int) throws(Defect) -> Int {
    try Self.number(bytes, at: offset, size: size)
  }

  /// The big-endian number at an offset, all of which must be in the buffer.
  private static func number(_ bytes: UnsafeRawBufferPointer, at offset: Int, size: Int) throws(Defect) -> Int
  {
    var value: UInt64 = 0
    for byte in bytes[offset..<offset + size] { value = value << 8 | UInt64(byte) }
    guard let number = Int(exactly: value) else { throw .malformed }
    return number
  }
}
