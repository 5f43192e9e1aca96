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

/// Whether all that keys and paths are made of is UTF-8. Swift replaces other bytes, after which a key or a path would be another one.
enum CommandLineEncoding {
  /// - Throws: `ValidationError` with the number of the argument that is not, and the argument without passwords.
  static func checkArguments() throws {
    for index in 0..<Int(CommandLine.argc) {
      guard let argument = CommandLine.unsafeArgv[index] else { continue }
      guard String(validatingCString: argument) != nil else {
        // Passwords first: what is escaped is no longer recognized as what an argument contains.
        let text = String(cString: argument).hidingPasswords.escaped
        throw ValidationError("Argument \(index) is not UTF-8: \(text).")
      }
    }
  }

  /// The current directory is a part of relative paths.
  ///
  /// - Throws: `StorageError` that shows its path if that is not UTF-8.
  static func checkCurrentDirectory() throws {
    // It may have been removed. Then those who look for something there find out.
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
