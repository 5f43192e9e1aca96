import ArgumentParser
import StockroomCore
import StockroomTransfer

/// `stockroom verify`
struct VerifyCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "verify",
    abstract: "Reads everything in a place, and fails if any of it is corrupted.",
    discussion: """
      What can be found depends on the engine and the layers: LevelDB keeps checksums, as do the layers checksummed, inventory and \
      encrypted; the others find what is missing, truncated or inconsistent. The target of an unfinished copy is a failure too, \
      unless the copy merges.

      Example:
        stockroom verify sqlite:notes
      """)

  @OptionGroup var placeOptions: PlaceOptions

  @Option(help: "A line (text), or an object (json). Nothing if the place is corrupted.")
  var format = DataFormat.text

  private struct Verified: Encodable {
    let place: String
    let count: Int
  }

  func run() async throws {
    let place = try placeOptions.place
    let count = try await ActivityLine.whileShown("Verifying \(place)") { _ in
      try await placeOptions.withEngine(for: .reading) { engine in
        try await engine.verify()
        try await engine.refuseUnfinishedCopy()
        return try await engine.keyCount()
      }
    }
    try writeToStandardOutput(
      format == .json
        ? jsonLine(Verified(place: "\(place)", count: count))
        : "\(place): no corruption found in \(count.entryCountText)\n")
  }
}
