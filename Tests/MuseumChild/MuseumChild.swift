import ConformanceKit
import Foundation
import StockroomCore

/// The child of the engines in the museum that break when their process dies, or beside another process.
@main enum MuseumChild {
  static func main() async throws {
    let arguments = CommandLine.arguments.dropFirst()
    if arguments.contains("fragile") {
      let flaw = arguments.lazy.compactMap(FragileEngine.Flaw.init).first
      return try await ConformanceChild.serve { try FragileEngine(directory: $0, flaw: flaw) }
    }
    if arguments.contains("careless") {
      let flaw = arguments.lazy.compactMap(CarelessEngine.Flaw.init).first
      let keepsLog = arguments.contains("log")
      return try await ConformanceChild.serve {
        try CarelessEngine(
          directory: $0, keepsLog: keepsLog, isDurable: !arguments.contains("fast"), flaw: flaw)
      }
    }
    let isShared = arguments.contains("shared")
    let flaw = arguments.lazy.compactMap(MortalEngine.Flaw.init).first
    try await ConformanceChild.serve { try MortalEngine(directory: $0, isShared: isShared, flaw: flaw) }
  }
}
