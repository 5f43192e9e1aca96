#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Parses the output of `strace -f`, in which the lines of all threads are interleaved.
enum TraceText {
  /// The calls in the order in which they ended.
  ///
  /// If another thread makes a call during this one, strace prints two lines. The first one ends with `<unfinished
  /// ...>`, and the second one begins with `<... name resumed>`.
  static func calls(in text: Data) -> [TraceCall] {
    var calls: [TraceCall] = []
    var unfinished: [Int: (text: [UInt8], line: Int)] = [:]
    text.withUnsafeBytes { bytes in
      var (start, number) = (0, 0)
      while start < bytes.count {
        let end = lineEnd(in: bytes, from: start)
        let line = Line(UnsafeRawBufferPointer(rebasing: bytes[start..<end]))
        start = end + 1
        number += 1
        guard let line else { continue }
        if let beginning = line.beginning {
          unfinished[line.process] = (Array(beginning), number)
          continue
        }
        guard let rest = line.rest else {
          if let call = TraceCall(process: line.process, line: line.text, began: number, ended: number) {
            calls.append(call)
          }
          continue
        }
        guard let (text, began) = unfinished.removeValue(forKey: line.process) else { continue }
        let call = (text + rest).withUnsafeBytes {
          TraceCall(process: line.process, line: $0, began: began, ended: number)
        }
        if let call { calls.append(call) }
      }
    }
    return calls
  }

  private static func lineEnd(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int {
    guard let base = bytes.baseAddress,
      let found = memchr(base + start, Int32(UInt8(ascii: "\n")), bytes.count - start)
    else { return bytes.count }
    return UnsafeRawPointer(found) - base
  }
}

/// A line: the process, and the text.
private struct Line {
  let process: Int
  let text: UnsafeRawBufferPointer

  private static let interruption = Array(" <unfinished ...>".utf8)
  private static let resumption = Array("<... ".utf8)

  init?(_ line: UnsafeRawBufferPointer) {
    guard let blank = line.firstIndex(of: UInt8(ascii: " ")),
      let process = Int(String(decoding: line[..<blank], as: UTF8.self)),
      let start = line[blank...].firstIndex(where: { $0 != UInt8(ascii: " ") })
    else { return nil }
    self.process = process
    text = UnsafeRawBufferPointer(rebasing: line[start...])
  }

  /// The text before `<unfinished ...>`, if the line ends with that.
  var beginning: UnsafeRawBufferPointer? {
    guard text.suffix(Self.interruption.count).elementsEqual(Self.interruption) else { return nil }
    return UnsafeRawBufferPointer(rebasing: text.dropLast(Self.interruption.count))
  }

  /// The text after `resumed>`, if the line begins with that.
  var rest: UnsafeRawBufferPointer? {
    guard text.starts(with: Self.resumption), let end = text.firstIndex(of: UInt8(ascii: ">")) else {
      return nil
    }
    return UnsafeRawBufferPointer(rebasing: text[(end + 1)...])
  }
}
