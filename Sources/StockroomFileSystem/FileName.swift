#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

/// The path of an entry's file, derived from its key: the encoding of this engine.
///
/// A name is the key itself, except for bytes that some file systems do not preserve or distinguish:
/// - `a` to `z`, `0` to `9`, `-`, `_`, `.`, `,`, `=` and `@` stand for themselves,
/// - `+a` stands for `A`, since many file systems do not distinguish between the two,
/// - `%` and two hexadecimal digits stand for any other byte, and for the first byte of a name that would have a special meaning
///   for a system or a shell: one that begins with `.` or `-`, and the name of a device on Windows, such as `con`.
///
/// The file has the extension `entry`. If the name is too long for one file, it continues in a directory with
/// the extension `more`, so that the path contains the whole key and entries are listed without an index. A
/// key has exactly one path and a path belongs to at most one key; a file whose path is not the one derived
/// from its key is not an entry.
struct FileName: Sendable {
  /// The components of the path, each terminated by a zero byte.
  fileprivate(set) var text: [UInt8] = []
  /// The positions at which the components after the first begin.
  private var laterStarts: [Int] = []

  static let entryExtension = Array(".entry".utf8)
  static let directoryExtension = Array(".more".utf8)
  /// The maximum length of a component before its extension. File systems allow 255 bytes; the rest is for
  /// the extension and for the bytes that escaping the name of a device adds.
  static let maximumStem = 240

  /// The path of the key's file.
  init(_ key: CacheKey) {
    key.withUTF8 { bytes in
      text.reserveCapacity(bytes.count + bytes.count / 4 + 16)
      var start = 0
      for byte in bytes {
        let length = text.count - start
        if length + Self.encodedLength(byte, isFirst: length == 0) > Self.maximumStem {
          finishComponent(from: start, extension: Self.directoryExtension)
          start = text.count
          laterStarts.append(start)
        }
        append(byte, isFirst: text.count == start)
      }
      finishComponent(from: start, extension: Self.entryExtension)
    }
  }

  /// The number of directories on the path.
  var directoryCount: Int { laterStarts.count }

  /// Calls `body` with a component as a C string. The last one, at ``directoryCount``, is the file.
  func withComponent<Result>(
    _ index: Int, _ body: (UnsafePointer<CChar>) throws -> Result
  ) rethrows -> Result {
    let start = index == 0 ? 0 : laterStarts[index - 1]
    return try text.withUnsafeBytes { bytes in
      // Never empty: each component ends with a zero byte.
      guard let first = bytes.baseAddress else { return try "".withCString(body) }
      return try body((first + start).assumingMemoryBound(to: CChar.self))
    }
  }

  /// Whether the name can be that of a directory of long keys. Engines make these names as long as possible, so other programs
  /// are unlikely to use them.
  static func isDirectoryOfLongKeys(_ name: UnsafeRawBufferPointer) -> Bool {
    // The next byte, which takes up to three, did not fit.
    name.count > maximumStem - 3 + directoryExtension.count
      && name.suffix(directoryExtension.count).elementsEqual(directoryExtension)
  }

  /// The path below the engine's directory, for messages.
  var path: String {
    String(decoding: text.dropLast().map { $0 == 0 ? UInt8(ascii: "/") : $0 }, as: UTF8.self)
  }
}

extension FileName: Hashable {
  static func == (left: FileName, right: FileName) -> Bool { left.text == right.text }

  func hash(into hasher: inout Hasher) { hasher.combine(text) }
}

// MARK: - Encoding

extension FileName {
  static func isPlain(_ byte: UInt8, isFirst: Bool) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"): true
    case UInt8(ascii: "_"), UInt8(ascii: ","), UInt8(ascii: "="), UInt8(ascii: "@"): true
    case UInt8(ascii: "-"), UInt8(ascii: "."): !isFirst
    default: false
    }
  }

  static func isUpperCase(_ byte: UInt8) -> Bool {
    byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z")
  }

  private static func encodedLength(_ byte: UInt8, isFirst: Bool) -> Int {
    isPlain(byte, isFirst: isFirst) ? 1 : isUpperCase(byte) ? 2 : 3
  }

  private mutating func append(_ byte: UInt8, isFirst: Bool) {
    if Self.isPlain(byte, isFirst: isFirst) {
      text.append(byte)
    } else if Self.isUpperCase(byte) {
      text.append(UInt8(ascii: "+"))
      text.append(byte | 0x20)
    } else {
      text.append(contentsOf: Self.escape(byte))
    }
  }

  private static func escape(_ byte: UInt8) -> [UInt8] {
    func digit(_ value: UInt8) -> UInt8 {
      value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }
    return [UInt8(ascii: "%"), digit(byte >> 4), digit(byte & 15)]
  }

  private mutating func finishComponent(from start: Int, extension: [UInt8]) {
    if Self.namesDevice(text[start...]) {
      text.replaceSubrange(start...start, with: Self.escape(text[start]))
    }
    text.append(contentsOf: `extension`)
    text.append(0)
  }

  /// Whether Windows treats the name as a device, regardless of what follows the first dot.
  static func namesDevice(_ name: some Collection<UInt8>) -> Bool {
    // Most names are rejected here: these are the first letters of all devices.
    switch name.first {
    case UInt8(ascii: "a")?, UInt8(ascii: "c")?, UInt8(ascii: "l")?, UInt8(ascii: "n")?, UInt8(ascii: "p")?:
      break
    default: return false
    }
    let stem = name.prefix(5).prefix { $0 != UInt8(ascii: ".") }
    switch stem.count {
    case 3: return devices.contains { stem.elementsEqual($0) }
    case 4:
      guard let last = stem.dropFirst(3).first, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(last) else {
        return false
      }
      return numberedDevices.contains { stem.dropLast().elementsEqual($0) }
    default: return false
    }
  }

  private static let devices = ["con", "prn", "aux", "nul"].map { Array($0.utf8) }
  private static let numberedDevices = ["com", "lpt"].map { Array($0.utf8) }
}
