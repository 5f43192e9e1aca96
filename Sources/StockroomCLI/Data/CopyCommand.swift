import ArgumentParser
import StockroomCore
import StockroomTransfer

/// `stockroom copy`
struct CopyCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "copy",
    abstract: "Copies all entries from one place to another, of the same or of another engine.",
    discussion: """
      Copies keys, values, timestamps and the order in which the keys were first written. At the end everything is read again and \
      compared. Nothing may be written to either place during the copy.

      The target must be empty, or contain an interrupted copy, which is then continued. With --merge the target keeps its entries; \
      if both places have a key, the entry that was written last is kept.

      Example:
        stockroom copy sqlite:notes --to lmdb:notes-copy
      """)

  @OptionGroup var placeOptions: PlaceOptions
  @OptionGroup var targetOptions: TargetOptions

  @Flag(help: "Allows a target place with entries, which are kept.")
  var merge = false

  @Option(help: "The format of the summary: a line (text), or an object (json).")
  var format = DataFormat.text

  private struct Copied: Encodable {
    let entries: Int
    let bytes: Int
    let written: Int
    let areTimesVerified: Bool
  }

  func validate() throws {
    // A copy of a place to itself would read the entries that it has just written, and write them again through the
    // layers.
    if try placeOptions.place.isSame(as: targetOptions.layered.place) {
      throw ValidationError("The source and the target are the same place.")
    }
  }

  func run() async throws {
    let (source, target) = try (placeOptions.layered, targetOptions.layered)
    let options = CopyOptions(target: merge ? .merge : .resume)
    let summary = try await ActivityLine.whileShown("Copying \(source.place)") { line in
      try await source.withEngine(for: .reading) { from in
        // Checked before the target is created.
        try await from.refuseUnfinishedCopy(in: "\(source.place)")
        // After a signal, the command also waits until the target has been closed.
        return try await CleaningUp.awaited {
          try await target.withEngine(for: .creating) { to in
            do {
              return try await IncompletePlace.reporting(target.place, completedBy: "the same command") {
                try await from.copy(to: to, options: options) { line.show($0.text) }
              }
            } catch let error as StorageError {
              // Not a ``PlaceFailure``, which would name only one place. The message of the cause says whether it is
              // about the source or the target.
              throw CopyFailure(source: source.place, target: target.place, cause: error)
            }
          }
        }
      }
    }
    switch format {
    case .json:
      try writeToStandardOutput(
        jsonLine(
          Copied(
            entries: summary.entries, bytes: summary.bytes, written: summary.written,
            areTimesVerified: summary.areTimesVerified)))
    case .text:
      let times = summary.areTimesVerified ? "" : ", without their times"
      try writeToStandardOutput(
        "\(target.place): \(summary.entries.entryCountText) copied and compared\(times)\n")
    }
  }
}

/// A copy failed.
struct CopyFailure: Error, CustomStringConvertible {
  let source: Place
  let target: Place
  let cause: StorageError

  var description: String { "\(source) to \(target): \(cause)" }
}

extension CopyProgress {
  fileprivate var text: String {
    let verb =
      switch phase {
      case .reading: "read"
      case .copying: "written"
      case .verifying: "compared"
      }
    return "\(entries) of \(totalEntries.entryCountText) \(verb)"
  }
}
