#if canImport(FoundationEssentials) && !canImport(Darwin)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The name of this program, as its directories are named after it.
package enum Program {
  /// The bundle identifier, or the name of the executable if there is none.
  ///
  /// Determined once, so that a program whose executable is replaced while it runs keeps its directories.
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
  /// All programs of a user share the XDG directories, and on macOS all programs without a sandbox share Application Support. An
  /// engine that is opened without a directory must not find another program's data there.
  package var ofProgram: FileManager.Directory {
    appending(Self.pathComponent(for: Program.name)).appending("Stockroom")
  }

  /// A name for a file or directory, derived from this text and different for each text.
  ///
  /// Letters, digits, `-`, `_` and `.` stay; every other byte, and a `.` at the beginning, is percent-encoded. A name of more
  /// than 200 bytes is replaced by a hash, since file systems limit the length of names.
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
    // In an encoded name, two hexadecimal digits follow each percent sign, so it can be neither of these two names.
    if name.isEmpty { return "%" }
    return name.utf8.count > 200 ? "%%" + CacheKey(text).value : name
  }
}
