import ArgumentParser
import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Checks that the arguments and the current directory are UTF-8. Swift replaces invalid bytes, which would change a
/// key or a path.
enum CommandLineEncoding {
  /// Checks every argument of the command line.
  ///
  /// - Throws: `ValidationError` with the number of the first argument that is not UTF-8, and its text without
  ///   passwords.
  static func checkArguments() throws {
    for index in 0..<Int(CommandLine.argc) {
      guard let argument = CommandLine.unsafeArgv[index] else { continue }
      guard String(validatingCString: argument) != nil else {
        // Passwords are hidden first: in escaped text they are not recognized.
        let text = String(cString: argument).hidingPasswords.escaped
        throw ValidationError("Argument \(index) is not UTF-8: \(text).")
      }
    }
  }

  /// Checks the path of the current directory, against which relative paths are resolved.
  ///
  /// - Throws: `StorageError` with code `unsupported` that shows the path if it is not UTF-8.
  static func checkCurrentDirectory() throws {
    // The directory may have been removed. Opening a relative path then reports the error.
    guard let path = getcwd(nil, 0) else { return }
    defer { free(path) }
    guard String(validatingCString: path) != nil else {
      throw StorageError(
        .unsupported,
        "The path of the current directory is not UTF-8: \(String(cString: path).escaped). Change to another directory first."
      )
    }
  }
}
