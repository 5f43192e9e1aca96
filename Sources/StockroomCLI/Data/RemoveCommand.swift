import ArgumentParser
import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// `stockroom remove`
struct RemoveCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "remove",
    abstract: "Removes entries.",
    discussion: """
      All keys are removed as one batch: all of them or, if the command fails, none. An absent key is not an error.

      Examples:
        stockroom remove sqlite:notes user/42 user/43
        stockroom remove sqlite:notes --all --force
      """)

  @OptionGroup var placeOptions: PlaceOptions

  @Argument(help: "The keys of the entries.")
  var keys: [String] = []

  @OptionGroup var keyOptions: KeyOptions

  @Flag(help: "Removes every entry. On a terminal the command asks first; otherwise --force is required.")
  var all = false

  @Flag(help: "With --all: does not ask.")
  var force = false

  @Option(help: "Nothing (text), or an object with the number of entries that were removed (json).")
  var format = DataFormat.text

  private struct Removed: Encodable {
    let removed: Int
  }

  func validate() throws {
    for key in keys { _ = try keyOptions.key(key) }
    if !all, !force, keys.isEmpty { throw ValidationError("Name the keys to remove, or --all.") }
    if all, !keys.isEmpty { throw ValidationError("--all and keys exclude each other.") }
    if all, keyOptions.hashed { throw ValidationError("--hashed is about keys, which --all does not take.") }
    if force, !all { throw ValidationError("--force needs --all.") }
    if all, !force, isatty(STDIN_FILENO) == 0 {
      throw ValidationError("--all removes every entry. Without a terminal to ask on, it needs --force.")
    }
  }

  func run() async throws {
    let keys = try keys.map(keyOptions.key)
    let place = try placeOptions.place
    let count: Int
    if all {
      if !force { try await confirm(place) }
      count = try await placeOptions.withEngine(for: .writing) { engine in
        guard format == .json else {
          try await engine.removeAllData()
          return 0
        }
        // One transaction, since another program may write between two calls.
        return try await engine.withTransaction { transaction in
          let count = try transaction.keyCount()
          try transaction.removeAll()
          return count
        }
      }
    } else {
      count = try await placeOptions.withEngine(for: .writing) { engine in
        guard format == .json else {
          try await engine.remove(keys: keys)
          return 0
        }
        return try await engine.withTransaction { transaction in
          let there = try Set(keys).filter(transaction.keyExists)
          for key in there { try transaction.remove(key: key) }
          return there.count
        }
      }
    }
    if format == .json { try writeToStandardOutput(jsonLine(Removed(removed: count))) }
  }

  /// Asks for confirmation on the terminal. The place is not open while the command waits for the answer.
  private func confirm(_ place: Place) async throws {
    let count = try await placeOptions.withEngine(for: .reading) { try await $0.keyCount() }
    let entries = count == 1 ? "the only entry" : "all \(count.entryCountText)"
    writeToStandardError("Remove \(entries) of \(place)? Type yes: ")
    guard readLine() == "yes" else { throw NotConfirmed(place: place) }
  }
}

/// The answer was not "yes".
struct NotConfirmed: Error, CustomStringConvertible {
  let place: Place

  var description: String { "\(place): Nothing was removed." }
}
