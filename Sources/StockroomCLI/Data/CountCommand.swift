import ArgumentParser
import StockroomCore

/// `stockroom count`
struct CountCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "count",
    abstract: "Prints the number of entries.",
    discussion: """
      Example:
        stockroom count sqlite:notes
      """)

  @OptionGroup var placeOptions: PlaceOptions

  @Option(help: "The number (text), or an object with it (json).")
  var format = DataFormat.text

  private struct Count: Encodable {
    let count: Int
  }

  func run() async throws {
    let count = try await ActivityLine.whileShown("Counting \(try placeOptions.place)") { _ in
      try await placeOptions.withEngine(for: .reading) { try await $0.keyCount() }
    }
    try writeToStandardOutput(format == .json ? jsonLine(Count(count: count)) : "\(count)\n")
  }
}
