package import Foundation

/// The modules that the tests were built with, for tests that run the compiler.
package enum BuiltModules {
  /// The directory of the modules; nil if they are not beside the tests.
  package static let directory: URL? = {
    var parent = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent()
    for _ in 0..<5 {
      let modules = parent.appending(path: "Modules", directoryHint: .isDirectory)
      if FileManager.default.fileExists(atPath: modules.appending(path: "StockroomCore.swiftmodule").path) {
        return modules
      }
      parent.deleteLastPathComponent()
    }
    return nil
  }()

  /// The compiler arguments for these modules and the C modules that they import.
  package static func compilerArguments(in directory: URL) -> [String] {
    let sources = URL(filePath: #filePath).appending(path: "../../../Sources").standardized
    let modules = ["StockroomCSupport/include", "StockroomCSQLite"].map { sources.appending(path: $0) }
    return ([directory] + modules).flatMap { ["-I", $0.path] }
  }
}
