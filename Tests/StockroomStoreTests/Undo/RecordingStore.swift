import StockroomCore
import StockroomStore

/// A store with these notes that records its later calls for undo.
@MainActor func recordingStore(_ engine: any StorageEngine, _ ids: String...) async throws -> Store<Note> {
  let store = try await Store<Note>(storage: engine)
  try await store.insert(ids.map { Note(id: $0, text: "first") })
  store.undoLimit = StoreUndoLimit(calls: 100)
  return store
}
