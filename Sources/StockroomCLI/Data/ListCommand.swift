import ArgumentParser
import Foundation
import StockroomCore

/// `stockroom list`
struct ListCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "list",
    abstract: "Lists the keys of a place, in byte order.",
    discussion: """
      Each line is a key. Control and invisible characters in keys are escaped: \\n, \\u{1B}, and \\\\ for a backslash. \
      JSON output has one object per line for each entry, in which keys are exact. Entries are read a page at a time, so a place of \
      any size can be listed; entries that are written in the meantime may or may not be in the list.

      Examples:
        stockroom list sqlite:notes --prefix user/ --long
        stockroom list lmdb:cache --null | xargs -0 -n 1 echo
      """)

  @OptionGroup var placeOptions: PlaceOptions

  @Option(help: ArgumentHelp("Only keys that begin with this.", valueName: "text"))
  var prefix: String?

  @Option(help: ArgumentHelp("Only keys that come after this one.", valueName: "key"))
  var after: String?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp("The maximum number of entries to list. (default: all)", valueName: "number"))
  var limit: Int?

  @Flag(
    help:
      "Also shows the size of each value in bytes, when the entry was created, and when it was last written.")
  var long = false

  @Flag(
    help:
      "Also shows each value: in text, escaped and after a tab; in JSON as value, or as base64 if it is not UTF-8."
  )
  var values = false

  @Flag(name: .customLong("null"), help: "Prints keys as they are, each followed by a NUL, for xargs -0.")
  var usesNull = false

  @Option(help: "The format of the list.")
  var format = DataFormat.text

  func validate() throws {
    if let limit, limit < 0 { throw ValidationError("The limit must be 0 or more, not \(limit).") }
    if let after { _ = try KeyOptions.verbatim(after) }
    if usesNull, long || values || format == .json {
      throw ValidationError("--null prints keys only, without --long, --values and --format json.")
    }
  }

  func run() async throws {
    var range = KeyRange.all
    range.prefix = prefix
    range.after = try after.map(KeyOptions.verbatim)
    let title = "Listing \(try placeOptions.place)"
    try await placeOptions.withEngine(for: .reading) { [range] engine in
      let pages = EntryPages(engine: engine, range: range, limit: limit ?? .max, hasTimes: long)
      try await ActivityLine.whileShown(title) { line in
        var count = 0
        try await pages.forEach { page in
          try writeToStandardOutput(page.map(text).joined())
          count += page.count
          line.show(count.entryCountText)
        }
      }
    }
  }

  private func text(_ entry: ListedEntry) throws -> String {
    if usesNull {
      guard !entry.key.value.utf8.contains(0) else {
        throw StorageError(
          .unsupported, "The key \(entry.key.value.escaped) has a NUL in it. Use --format json.")
      }
      return entry.key.value + "\0"
    }
    switch format {
    case .text: return entry.text(hasValue: values)
    case .json: return try jsonLine(EntryJSON(entry, hasValue: values))
    }
  }
}
