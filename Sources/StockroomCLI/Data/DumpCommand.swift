import ArgumentParser
import Foundation
import StockroomCore
import StockroomTransfer

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// `stockroom dump`
struct DumpCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "dump",
    abstract: "Writes all entries of a place to an archive.",
    discussion: """
      An archive is one compressed file with checksums, from which `stockroom restore` fills a place of any engine. It is written to \
      standard output, unless --to names a file, which is either complete or not created. The entries are those of one snapshot.

      Examples:
        stockroom dump sqlite:notes --to notes.archive
        stockroom dump sqlite:notes | ssh elsewhere stockroom restore --to lmdb:notes
      """)

  @OptionGroup var placeOptions: PlaceOptions

  @Option(name: .customLong("to"), help: ArgumentHelp("The file to write.", valueName: "path"))
  var file: String?

  @Flag(help: "Replaces the file if it exists.")
  var replace = false

  @Option(help: "With --to: a line (text), or an object (json).")
  var format = DataFormat.text

  func validate() throws {
    if file?.isEmpty == true { throw ValidationError("The path for --to is empty.") }
    guard file == nil else { return }
    if replace || format == .json {
      throw ValidationError(
        "--replace and --format json belong to --to: otherwise the archive is standard output.")
    }
    if isatty(STDOUT_FILENO) == 1 {
      throw ValidationError("An archive is not written to a terminal: name a file with --to, or a pipe.")
    }
  }

  func run() async throws {
    let place = try placeOptions.place
    try refuseFile(of: place)
    let summary = try await ActivityLine.whileShown("Dumping \(place)") { line in
      try await placeOptions.withEngine(for: .reading) { engine in
        let progress: @Sendable (ArchiveProgress) -> Void = { line.show($0.text) }
        guard let file else {
          do {
            return try await engine.dump(
              toDescriptor: STDOUT_FILENO, progress: progress)
          } catch let error as StorageError where (error.underlying as? SystemError)?.number == EPIPE {
            throw Interrupted(signal: SIGPIPE)
          }
        }
        return try await CleaningUp.awaited {
          try await engine.dump(
            to: URL(commandLinePath: file, directoryHint: .notDirectory), replacing: replace,
            progress: progress)
        }
      }
    }
    guard let file else { return }
    try writeToStandardOutput(
      format == .json
        ? jsonLine(ArchiveJSON(summary))
        : "\(file.escaped): \(summary.entryCount.entryCountText) in \(summary.archiveSize) bytes\n")
  }
}

extension DumpCommand {
  /// Throws if the archive would replace a file of the place, which would destroy the place.
  private func refuseFile(of place: Place) throws {
    guard let file else { return }
    let url = URL(commandLinePath: file, directoryHint: .notDirectory)
    guard place.hasFile(at: url) else { return }
    throw PlaceFailure(
      place: place,
      cause: StorageError(
        .unsupported,
        "\(url.path(percentEncoded: false)) is a file of the place itself, so no archive is written to it."))
  }
}

/// The summary of an archive, in JSON.
struct ArchiveJSON: Encodable {
  let entryCount: Int
  let contentSize: Int
  let archiveSize: Int
  let createdAt: String
  let isSnapshot: Bool

  init(_ summary: ArchiveSummary) {
    (entryCount, contentSize) = (summary.entryCount, summary.contentSize)
    (archiveSize, isSnapshot) = (summary.archiveSize, summary.isSnapshot)
    createdAt = summary.createdAt.inUTC
  }
}

extension ArchiveProgress {
  /// The progress as text.
  var text: String {
    guard let totalEntryCount else { return entryCount.entryCountText }
    return "\(entryCount) of \(totalEntryCount.entryCountText)"
  }
}
