import ArgumentParser
import Foundation
import StockroomCore
import StockroomTransfer

/// `stockroom backup`
struct BackupCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "backup",
    abstract: "Copies a place, while it is in use, to a directory that the same engine opens.",
    discussion: """
      The copy is a snapshot of everything, and is either complete or not made at all. It contains the data as the engine stores it, \
      below all layers: encrypted values stay encrypted. Archives, made by `stockroom dump`, work with every engine.

      Example:
        stockroom backup sqlite:notes --to backups/monday
      """)

  @Argument(
    help: ArgumentHelp("The place: sqlite:PATH, lmdb:PATH, leveldb:PATH or files:PATH.", valueName: "place"))
  var location: String

  @Option(
    name: .customLong("to"),
    help: ArgumentHelp("The directory of the copy, which must be empty or absent.", valueName: "path"))
  var directory: String

  @Option(help: "A line (text), or an object (json).")
  var format = DataFormat.text

  private struct BackedUp: Encodable {
    let directory: String
  }

  func validate() throws {
    _ = try place
    if directory.isEmpty { throw ValidationError("The path for --to is empty.") }
  }

  /// The place without layers: a backup copies the data as the engine stores it.
  private var place: LayeredPlace {
    get throws {
      try LayeredPlace(location, layers: [], keyFiles: [], namesKeyFile: nil, optionPrefix: "--")
    }
  }

  func run() async throws {
    let place = try place
    let url = URL(commandLinePath: directory, directoryHint: .isDirectory)
    try await ActivityLine.whileShown("Backing up \(place.place)") { _ in
      try await place.withEngine(for: .reading) { engine in
        try await engine.refuseUnfinishedCopy()
        guard let engine = engine as? any BackupEngine else {
          throw StorageError(
            .unsupported,
            "A place of this engine is backed up by the server's own means, or by stockroom dump.")
        }
        try await CleaningUp.awaited { try await engine.backUp(to: FileManager.Directory(url: url)) }
      }
    }
    try writeToStandardOutput(
      format == .json
        ? jsonLine(BackedUp(directory: directory)) : "\(place.place): backed up to \(directory.escaped)\n")
  }
}
