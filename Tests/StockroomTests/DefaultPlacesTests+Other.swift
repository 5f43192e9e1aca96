import Stockroom
import Testing

/// Another type than that of the same name in the file beside this one.
private struct Setting: Codable, Sendable, Identifiable { var id: String }

/// Throws, because the place that is named after the type belongs to the other type.
func useOtherSetting() async throws {
  let cache = PersistentCache<String, Setting>()
  await #expect(throws: StorageError.self) { try await cache["key"] }
  try await Store<Setting>().removeAll()
}
