import ArgumentParser
import Foundation
import StockroomCore

/// `stockroom get`
struct GetCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "get",
    abstract: "Prints the value of a key, byte for byte.",
    discussion: """
      If there is no such entry, the exit status is 1, and nothing is printed.

      Examples:
        stockroom get sqlite:notes user/42 > 42.json
        stockroom get sqlite:notes user/42 --format json
      """)

  @OptionGroup var placeOptions: PlaceOptions

  @Argument(help: "The key of the entry.")
  var key: String

  @OptionGroup var keyOptions: KeyOptions

  @Option(
    help:
      "The bytes of the value and nothing else (text), or an object with the key, the times and the value (json)."
  )
  var format = DataFormat.text

  func validate() throws { _ = try keyOptions.key(key) }

  func run() async throws {
    let key = try keyOptions.key(key)
    let output = try await placeOptions.withEngine(for: .reading) { engine -> Data? in
      switch format {
      case .text: return try await engine.read(key: key)
      case .json:
        guard let entry = try await engine.readEntries(keys: [key]).first else { return nil }
        let listed = ListedEntry(key: key, data: entry.data, times: (entry.createdAt, entry.updatedAt))
        return Data(try jsonLine(EntryJSON(listed, hasValue: true)).utf8)
      }
    }
    guard let output else { throw EntryAbsent(place: try placeOptions.place, key: key) }
    try writeToStandardOutput(output)
  }
}

/// There is no entry under the key.
struct EntryAbsent: Error, CustomStringConvertible {
  let place: Place
  let key: CacheKey

  var description: String { "\(place): There is no entry \(key.value.escaped)." }
}
