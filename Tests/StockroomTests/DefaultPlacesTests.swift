import Foundation
import Stockroom
import Testing

@Suite("Places that are named after types") struct DefaultPlacesTests {
  @Test("Two types of one name do not share a place")
  func sameName() async {
    await #expect(processExitsWith: .success) {
      try await withOwnDataDirectory {
        try await useSetting()
        let error = await #expect(throws: StorageError.self) { try await useOtherSetting() }
        try #require(error?.code == .unsupported)
        // The first still has its place.
        try await useSetting()
      }
    }
  }
}

private struct Setting: Codable, Sendable, Identifiable { var id: String }

private func useSetting() async throws {
  try await Store<Setting>().insert(Setting(id: "1"))
  try await PersistentCache<String, Setting>().store(Setting(id: "1"), forKey: "key")
}
