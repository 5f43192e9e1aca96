import Foundation
import StockroomCore
import StockroomStore

// A type that was changed three times. Version 1 predates versioning.

struct FirstNote: Codable, Sendable, Identifiable, Equatable {
  var id: String
  var text: String
}

struct SecondNote: VersionedItem, Identifiable, Equatable {
  /// The error of the first migration step for a text that it refuses.
  struct Refusal: Error {}

  var id: String
  var text: String
  var isDone: Bool

  init(id: String, text: String, isDone: Bool = false) {
    (self.id, self.text, self.isDone) = (id, text, isDone)
  }

  init(migrating previous: FirstNote) throws {
    if previous.text == "refused" { throw Refusal() }
    self.init(id: previous.id, text: previous.text)
  }
}

struct ThirdNote: VersionedItem, Identifiable, Equatable {
  var id: String
  var lines: [String]
  var isDone: Bool

  init(id: String, lines: [String], isDone: Bool = false) {
    (self.id, self.lines, self.isDone) = (id, lines, isDone)
  }

  init(migrating previous: SecondNote) {
    self.init(id: previous.id, lines: [previous.text], isDone: previous.isDone)
  }
}

struct FourthNote: VersionedItem, Identifiable, Equatable {
  var id: String
  var title: String?
  var lines: [String]
  var isDone: Bool

  init(id: String, title: String? = nil, lines: [String], isDone: Bool = false) {
    (self.id, self.title, self.lines, self.isDone) = (id, title, lines, isDone)
  }

  init(migrating previous: ThirdNote) {
    self.init(id: previous.id, lines: previous.lines, isDone: previous.isDone)
  }
}

/// Writes notes with these numbers in all four versions in turn, like the programs of each version, and
/// returns them in the newest version.
@discardableResult
func writeEveryVersion(
  of numbers: Range<Int>, to engine: some StorageEngine
) async throws -> [FourthNote] {
  func entries<Item: StorableItem & Identifiable>(_ items: [Item]) -> [(key: CacheKey, object: Item)]
  where Item.ID == String { items.map { (key($0.id), $0) } }

  for number in numbers {
    let (id, text) = ("note \(number)", "text \(number)")
    switch number % 4 {
    case 0: try await engine.write(JSONEncoder().encode(FirstNote(id: id, text: text)), key: key(id))
    case 1:
      try await ObjectStorage<SecondNote>(storage: engine).store(
        SecondNote(id: id, text: text), forKey: key(id))
    case 2:
      try await ObjectStorage<ThirdNote>(storage: engine).store(
        ThirdNote(id: id, lines: [text]), forKey: key(id))
    default:
      try await ObjectStorage<FourthNote>(storage: engine)
        .store(FourthNote(id: id, lines: [text]), forKey: key(id))
    }
  }
  return numbers.map { FourthNote(id: "note \($0)", lines: ["text \($0)"]) }
}

/// Writes the given number of notes of the first version, with their numbers as identifiers.
func writeFirstNotes(_ count: Int, to engine: some StorageEngine) async throws {
  try await ObjectStorage<FirstNote>(storage: engine)
    .store((0..<count).map { (key("\($0)"), FirstNote(id: "\($0)", text: "text \($0)")) })
}

/// The versions stored in the entries, by key; 1 for entries without a version.
func versions(in engine: some StorageEngine) async throws -> [String: String] {
  let entries = try await engine.readAllDataAndKeys().map { key, data in
    guard data.first == 0xFF, let end = data.firstIndex(of: UInt8(ascii: "\n")) else {
      return (key.value, "1")
    }
    return (key.value, String(decoding: data[..<end].dropFirst("?version ".count), as: UTF8.self))
  }
  return Dictionary(uniqueKeysWithValues: entries)
}

extension StoreRewritingState {
  /// The number of rewritten entries; nil if rewriting has not ended, or has failed.
  var rewrittenCount: Int? { if case .rewritten(let count) = self { count } else { nil } }
}

/// The error about a version newer than those that a program supports.
func newerVersion(_ error: (any Error)?) -> NewerVersionError? {
  guard let error = error as? StorageError, error.code == .unsupported else { return nil }
  return error.underlying as? NewerVersionError
}

/// Waits for an effect of another task.
@MainActor func wait(until isTrue: () throws -> Bool) async throws {
  while try !isTrue() {
    try Task.checkCancellation()
    await Task.yield()
  }
}
