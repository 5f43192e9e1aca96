#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A system call as `strace` prints it: one line of output, or two if another thread's call came in between.
///
/// Parses the output of `strace -f -y -xx`, which prints all strings in hexadecimal.
struct TraceCall {
  let process: Int
  let name: String
  let arguments: [TraceValue]
  /// The return value of the call. Nil if it did not return.
  let result: Int?
  /// The lines of the trace at which the call began and ended. They differ only if another thread's call came in
  /// between.
  var began: Int
  var ended: Int

  var succeeded: Bool { result.map { $0 >= 0 } ?? false }
}

/// An argument of a call.
indirect enum TraceValue: Equatable {
  /// A buffer or a path, cut off if it was longer than the limit of `strace`.
  case bytes(Data, isCutOff: Bool)
  /// A number, with the path of the file if it is a descriptor.
  case number(Int, path: String?)
  /// Names of constants, as in `O_RDWR|O_CREAT`, with the path of the directory after `AT_FDCWD`.
  case symbols(Set<String>, path: String?)
  case list([TraceValue])
  case fields([String: TraceValue])

  var number: Int? { if case .number(let number, _) = self { number } else { nil } }

  /// Permissions: the octal digits were parsed as decimal.
  var octal: Int? { number.flatMap { Int(String($0), radix: 8) } }

  var symbols: Set<String> { if case .symbols(let symbols, _) = self { symbols } else { [] } }

  /// The path that `strace` prints after a descriptor.
  var path: String? {
    switch self {
    case .number(_, let path), .symbols(_, let path): path
    default: nil
    }
  }

  /// The path, or nil if it is not one.
  var text: String? {
    if case .bytes(let bytes, false) = self { String(decoding: bytes, as: UTF8.self) } else { nil }
  }
}

extension TraceCall {
  /// Parses a line without the process number at its beginning. Nil if it is not a call, but for example a signal.
  init?(process: Int, line: UnsafeRawBufferPointer, began: Int, ended: Int) {
    var scanner = TraceScanner(bytes: line)
    guard let name = scanner.word(), scanner.skip("(") else { return nil }
    var arguments: [TraceValue] = []
    while !scanner.skip(")") {
      guard let value = scanner.value() else { return nil }
      arguments.append(value)
      scanner.skipToEndOfArgument()
      scanner.skip(",")
    }
    (self.process, self.name, self.arguments) = (process, name, arguments)
    (self.began, self.ended) = (began, ended)
    result = scanner.skip("=") ? scanner.value()?.number : nil
  }
}

/// Splits a line into its parts. Ignores blanks between them.
private struct TraceScanner {
  let bytes: UnsafeRawBufferPointer
  private var position = 0

  init(bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

  private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

  private mutating func skipBlanks() {
    while next == UInt8(ascii: " ") { position += 1 }
  }

  @discardableResult
  mutating func skip(_ character: Unicode.Scalar) -> Bool {
    skipBlanks()
    guard next == UInt8(ascii: character) else { return false }
    position += 1
    return true
  }

  /// Letters, digits and underscores.
  mutating func word() -> String? {
    skipBlanks()
    let start = position
    while let byte = next, byte.isWordCharacter { position += 1 }
    return start == position ? nil : String(decoding: bytes[start..<position], as: UTF8.self)
  }

  /// Any value. Nil at the end of the line, or at a character that no value begins with.
  mutating func value() -> TraceValue? {
    skipBlanks()
    switch next {
    case UInt8(ascii: "\""): return string()
    case UInt8(ascii: "["):
      position += 1
      return list()
    case UInt8(ascii: "{"):
      position += 1
      return fields()
    case .some(let byte) where byte.isDigit || byte == UInt8(ascii: "-"): return numeral()
    case .some(let byte) where byte.isWordCharacter: return constants()
    default: return nil
    }
  }

  private mutating func string() -> TraceValue? {
    position += 1
    let start = position
    // A string in hexadecimal contains no quotation marks.
    while let byte = next, byte != UInt8(ascii: "\"") { position += 1 }
    guard position < bytes.count else { return nil }
    let text = hexadecimal(start..<position)
    position += 1
    var isCutOff = false
    while next == UInt8(ascii: ".") {
      isCutOff = true
      position += 1
    }
    return .bytes(text, isCutOff: isCutOff)
  }

  /// The bytes of `\x01\x02…`. Other characters stand for themselves.
  private func hexadecimal(_ range: Range<Int>) -> Data {
    var result = Data(count: (range.count + 3) / 4)
    let isHexadecimal = result.withUnsafeMutableBytes { result in
      guard range.count % 4 == 0 else { return false }
      var index = range.lowerBound
      for place in result.indices {
        guard bytes[index] == UInt8(ascii: "\\") else { return false }
        result[place] = bytes[index + 2].hexadecimalDigit << 4 | bytes[index + 3].hexadecimalDigit
        index += 4
      }
      return true
    }
    return isHexadecimal ? result : Data(bytes[range])
  }

  private mutating func list() -> TraceValue? {
    var values: [TraceValue] = []
    while !skip("]") {
      guard let value = value() else { return nil }
      values.append(value)
      skipToEndOfArgument()
      skip(",")
    }
    return .list(values)
  }

  private mutating func fields() -> TraceValue? {
    var fields: [String: TraceValue] = [:]
    while !skip("}") {
      guard let name = word() else {
        // An ellipsis, where strace has left fields out.
        skipToEndOfArgument()
        if !skip(","), next != UInt8(ascii: "}") { return nil }
        continue
      }
      if skip("=") { fields[name] = value() }
      skipToEndOfArgument()
      skip(",")
    }
    return .fields(fields)
  }

  private mutating func numeral() -> TraceValue? {
    let start = position
    position += 1
    while let byte = next, byte.isWordCharacter { position += 1 }
    let text = String(decoding: bytes[start..<position], as: UTF8.self)
    let number =
      text.hasPrefix("0x")
      ? Int(truncatingIfNeeded: UInt64(text.dropFirst(2), radix: 16) ?? 0)
      : Int(text) ?? 0
    return .number(number, path: annotation())
  }

  private mutating func constants() -> TraceValue? {
    var symbols: Set<String> = []
    repeat {
      guard let symbol = word() else { return nil }
      symbols.insert(symbol)
    } while skip("|")
    return .symbols(symbols, path: annotation())
  }

  /// The path in angle brackets.
  private mutating func annotation() -> String? {
    guard next == UInt8(ascii: "<") else { return nil }
    let start = position + 1
    while let byte = next, byte != UInt8(ascii: ">") { position += 1 }
    defer { position = min(position + 1, bytes.count) }
    return String(decoding: hexadecimal(start..<position), as: UTF8.self)
  }

  /// Skips what may follow a value: comments, the new contents of a structure, and the like.
  mutating func skipToEndOfArgument() {
    var depth = 0
    while let byte = next {
      switch byte {
      case UInt8(ascii: "("), UInt8(ascii: "["), UInt8(ascii: "{"): depth += 1
      case UInt8(ascii: ")"), UInt8(ascii: "]"), UInt8(ascii: "}"):
        if depth == 0 { return }
        depth -= 1
      case UInt8(ascii: ",") where depth == 0: return
      default: break
      }
      position += 1
    }
  }
}

extension UInt8 {
  fileprivate var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }

  fileprivate var isWordCharacter: Bool {
    isDigit || self == UInt8(ascii: "_") || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(self | 0x20)
  }

  fileprivate var hexadecimalDigit: UInt8 {
    isDigit ? self - UInt8(ascii: "0") : (self | 0x20) &- UInt8(ascii: "a") &+ 10
  }
}
