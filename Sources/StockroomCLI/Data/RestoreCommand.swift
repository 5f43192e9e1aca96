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

/// `stockroom restore`
struct RestoreCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "restore",
    abstract: "Fills a place with the entries of an archive.",
    discussion: """
      The archive comes from standard input, unless a file is named. All of it is verified before the place is created or changed. The \
      place must be empty, unless --merge is given: then entries whose keys are in the archive are replaced, and the others are kept.

      Ctrl-C removes what has been written. With --merge it is kept, and restoring again completes it.

      Example:
        stockroom restore notes.archive --to lmdb:notes
      """)

  @Argument(help: ArgumentHelp("The archive.", valueName: "file"))
  var file: String?

  @OptionGroup var targetOptions: TargetOptions

  @Flag(help: "Allows a place with entries. Those that are in the archive are replaced.")
  var merge = false

  @Option(help: "A line (text), or an object (json).")
  var format = DataFormat.text

  func validate() throws {
    if file?.isEmpty == true { throw ValidationError("The path of the archive is empty.") }
    if file == nil, isatty(STDIN_FILENO) == 1 {
      throw ValidationError("Name an archive, or pipe one to standard input.")
    }
  }

  func run() async throws {
    let target = try targetOptions.layered
    let summary = try await ActivityLine.whileShown("Restoring \(target.place)") { line in
      line.show("verifying the archive")
      let reader =
        if let file {
          try await Self.archive(at: file)
        } else {
          try await ArchiveReader(descriptor: STDIN_FILENO, maximumValueSize: maximumValueSize)
        }
      // After a signal, the command also waits until the target has been closed.
      return try await CleaningUp.awaited {
        try await target.withEngine(for: .creating) { engine in
          try await IncompletePlace.reporting(
            target.place, completedBy: merge ? "restoring again with --merge" : nil
          ) {
            try await engine.restore(reader, merging: merge) { line.show($0.text) }
          }
        }
      }
    }
    try writeToStandardOutput(
      format == .json
        ? jsonLine(ArchiveJSON(summary)) : "\(target.place): \(summary.entryCount.entryCountText) restored\n")
  }

  /// Opens an archive and verifies all of it. A pipe, such as the shell's `<(…)`, is read like standard input.
  private static func archive(at path: String) async throws -> ArchiveReader {
    let file = OutputFile(path)
    guard file.isSpecial else {
      return try await ArchiveReader(
        URL(commandLinePath: path, directoryHint: .notDirectory), maximumValueSize: maximumValueSize)
    }
    let descriptor = try file.openedToRead()
    defer { close(descriptor) }
    do {
      return try await ArchiveReader(descriptor: descriptor, maximumValueSize: maximumValueSize)
    } catch let error as StorageError {
      // The message contains only the number of the descriptor, so the path is added.
      throw StorageError(error.code, "\(file.path): \(error.message)", underlying: error.underlying)
    }
  }
}
