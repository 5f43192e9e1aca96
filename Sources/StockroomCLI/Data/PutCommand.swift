import ArgumentParser
import Foundation
import StockroomCore

/// `stockroom put`
struct PutCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "put",
    abstract: "Writes a value under a key.",
    discussion: """
      The value comes from standard input, unless --value or --file is given. An existing value is replaced. When the command ends \
      with status 0, the value is on the disk.

      Examples:
        stockroom put sqlite:notes user/42 < 42.json
        stockroom put sqlite:notes lock --value "$HOSTNAME" --if-absent
      """)

  @OptionGroup var placeOptions: PlaceOptions

  @Argument(help: "The key of the entry.")
  var key: String

  @OptionGroup var keyOptions: KeyOptions

  @Option(help: ArgumentHelp("The value, as text.", valueName: "text"))
  var value: String?

  @Option(help: ArgumentHelp("The file whose contents are the value.", valueName: "path"))
  var file: String?

  @Flag(help: "Writes only if the key is absent. Otherwise the entry is kept, and the exit status is 1.")
  var ifAbsent = false

  @Flag(help: "Creates the place if it does not exist.")
  var create = false

  @Option(help: "Nothing (text), or an object with the key and the size of the value (json).")
  var format = DataFormat.text

  private struct Written: Encodable {
    let key: String
    let size: Int
  }

  func validate() throws {
    _ = try keyOptions.key(key)
    if value != nil, file != nil { throw ValidationError("--value and --file exclude each other.") }
    if file?.isEmpty == true { throw ValidationError("The path for --file is empty.") }
  }

  func run() async throws {
    let key = try keyOptions.key(key)
    let place = try placeOptions.place
    // Checked before the value is read, which may have to be waited for. The place is not open in the meantime.
    if !create {
      try PlaceFailure.naming(place) { try place.requirePresence() }
    }
    let data = try newValue()
    try await placeOptions.withEngine(for: create ? .creating : .writing) { engine in
      guard ifAbsent else { return try await engine.write(data, key: key) }
      let isNew = try await engine.withTransaction { transaction in
        guard try !transaction.keyExists(key) else { return false }
        try transaction.write(data, key: key)
        return true
      }
      if !isNew { throw EntryPresent(place: place, key: key) }
    }
    if format == .json { try writeToStandardOutput(jsonLine(Written(key: key.value, size: data.count))) }
  }

  private func newValue() throws -> Data {
    if let value { return Data(value.utf8) }
    if let file { return try OutputFile(file).readBytes() }
    return try readStandardInput()
  }
}

/// There is an entry under the key already.
struct EntryPresent: Error, CustomStringConvertible {
  let place: Place
  let key: CacheKey

  var description: String {
    "\(place): The entry \(key.value.escaped) already exists and was not changed."
  }
}
