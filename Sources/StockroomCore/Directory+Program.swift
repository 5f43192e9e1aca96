#if canImport(FoundationEssentials) && !canImport(Darwin)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Which program this is, as far as the names of its directories go.
package enum Program {
  /// The bundle identifier, and where there is none the name of the executable.
  ///
  /// Asked once, so that a program whose file is replaced while it runs keeps its places.
  package static let name: String = {
    #if canImport(Darwin)
      return Bundle.main.bundleIdentifier ?? ProcessInfo.processInfo.processName
    #else
      let name = ProcessInfo.processInfo.processName
      // Linux adds this to the path of an executable that has been removed or replaced.
      let suffix = " (deleted)"
      return name.hasSuffix(suffix) ? String(name.dropLast(suffix.count)) : name
    #endif
  }()
}

extension FileManager.Directory {
  /// The directory below this one that belongs to this program and this library: `<program>/Stockroom`.
  ///
  /// Every program of a user has the same XDG directories, and on macOS every program without a sandbox the same
  /// Application Support. An engine that is opened without a directory must not find another program's data there.
  package var ofProgram: FileManager.Directory {
    appending(Self.pathComponent(for: Program.name)).appending("Stockroom")
  }

  /// A name for a file or directory that stands for this text, and for no other.
  ///
  /// Letters, digits, `-`, `_` and `.` stay; every other byte, and a `.` at the beginning, is percent-encoded. What
  /// would be longer than file systems allow is hashed.
  package static func pathComponent(for text: String) -> String {
    var name = ""
    for (index, byte) in text.utf8.enumerated() {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"),
        UInt8(ascii: ".") where index > 0:
        name.unicodeScalars.append(Unicode.Scalar(byte))
      default:
        name += (byte < 16 ? "%0" : "%") + String(byte, radix: 16, uppercase: true)
      }
    }
    // An encoded name has no percent sign that is not followed by two digits, so neither of these is one.
    if name.isEmpty { return "%" }
    return name.utf8.count > 200 ? "%%" + CacheKey(text).value : name
  }
}
