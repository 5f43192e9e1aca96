#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

/// The beginning of a path: the directories down to the one that is being listed.
struct FileNamePrefix {
  private var key: [UInt8] = []
  private var text: [UInt8] = []
  private var depth = 0

  /// No key is so long that its path has more directories.
  private static let maximumDepth = CacheKey.maximumLength * 3 / (FileName.maximumStem - 2)

  /// The prefix extended by this directory, or nil if the directory is not one of this engine's.
  func appending(directory name: UnsafeRawBufferPointer) -> FileNamePrefix? {
    guard depth < Self.maximumDepth, FileName.isDirectoryOfLongKeys(name) else { return nil }
    var result = self
    guard result.append(name, extension: FileName.directoryExtension) else { return nil }
    result.depth += 1
    return result
  }

  /// Calls `body` with the bytes of the key of the entry in this file, unless the file is not one of this
  /// engine's.
  func withKey(file name: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) throws -> Void) rethrows {
    guard Self.hasExtension(name, FileName.entryExtension) else { return }
    let stem = UnsafeRawBufferPointer(rebasing: name[..<(name.count - FileName.entryExtension.count)])
    if depth == 0, Self.standsForItself(stem) { return try body(stem) }

    // In general, a path belongs to an entry if it equals the path derived from the entry's key.
    var result = self
    guard result.append(name, extension: FileName.entryExtension),
      (1...CacheKey.maximumLength).contains(result.key.count),
      let key = result.key.withUnsafeBytes({ CacheKey(utf8: $0) }), FileName(key).text == result.text
    else { return }
    try result.key.withUnsafeBytes(body)
  }

  /// Whether no byte of the name is encoded or needs to be, as in most names.
  private static func standsForItself(_ stem: UnsafeRawBufferPointer) -> Bool {
    guard stem.count <= FileName.maximumStem, let start = stem.baseAddress, let first = stem.first,
      FileName.isPlain(first, isFirst: true), !FileName.namesDevice(stem)
    else { return false }
    // The extension consists of plain bytes, too, and a zero byte follows it.
    let plainCount = strspn(start.assumingMemoryBound(to: CChar.self), plainBytes)
    return plainCount >= stem.count
  }

  /// Zero-terminated, for C.
  private static let plainBytes: [CChar] =
    (1...127).filter { FileName.isPlain($0, isFirst: false) }.map { CChar(bitPattern: $0) } + [0]

  private static func hasExtension(_ name: UnsafeRawBufferPointer, _ extension: [UInt8]) -> Bool {
    guard name.count > `extension`.count, let start = name.baseAddress else { return false }
    return memcmp(start + name.count - `extension`.count, `extension`, `extension`.count) == 0
  }

  /// Decodes one component. Accepts more than encoding produces, so the result must be compared.
  private mutating func append(_ name: UnsafeRawBufferPointer, extension: [UInt8]) -> Bool {
    guard Self.hasExtension(name, `extension`) else { return false }
    var index = 0
    let end = name.count - `extension`.count
    while index < end {
      switch name[index] {
      case UInt8(ascii: "+"):
        guard index + 1 < end else { return false }
        key.append(name[index + 1] & 0xDF)
        index += 2
      case UInt8(ascii: "%"):
        guard index + 2 < end, let high = Self.value(ofDigit: name[index + 1]),
          let low = Self.value(ofDigit: name[index + 2])
        else { return false }
        key.append(high << 4 | low)
        index += 3
      case let byte:
        key.append(byte)
        index += 1
      }
    }
    text.append(contentsOf: name)
    text.append(0)
    return true
  }

  private static func value(ofDigit digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
    default: nil
    }
  }
}
