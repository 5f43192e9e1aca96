import Foundation
import StockroomCore
import StockroomStore

/// A simple item.
struct Note: Codable, Sendable, Identifiable, Equatable {
  var id: String
  var text = ""

  static func numbered(_ numbers: Range<Int>, text: String = "") -> [Note] {
    numbers.map { Note(id: "note \($0)", text: text) }
  }
}

/// The items that an engine holds, in order.
func notes(in engine: any StorageEngine) async throws -> [Note] {
  try await engine.readAllEntries().map { try JSONDecoder().decode(Note.self, from: $0.data) }
}

/// Whether the store, its engine and a new store have the same items in the same order.
@MainActor func agree(_ store: Store<Note>, _ engine: any StorageEngine) async throws -> Bool {
  let stored = try await notes(in: engine)
  let fresh = try await Store<Note>(storage: engine)
  return store.items == stored && fresh.items == stored
}

/// The first elements of a stream.
func first<Element>(_ count: Int, of stream: AsyncStream<Element>) async -> [Element] {
  var elements: [Element] = []
  if count == 0 { return elements }
  for await element in stream {
    elements.append(element)
    if elements.count == count { break }
  }
  return elements
}
