// The Swift code of ComingFromOtherLibraries.md, which ReadmeTests compares with the page.

import Foundation
import Observation
import Stockroom

struct RemoteImage: Codable, Sendable, Identifiable {
  var url: URL
  var id: String { url.absoluteString }
}

extension Store where Item == RemoteImage {
  static let imagesStore = Store<RemoteImage>(
    storage: SQLiteStorageEngine.default(appendingPath: "Images"), cacheIdentifier: \.id)
}

@MainActor @Observable
final class ImagesController {
  @ObservationIgnored @Stored(in: .imagesStore) var images

  func replaceAll(with images: [RemoteImage]) async throws {
    try await self.$images.removeAll().insert(images).run()
  }
}

func loadName(of id: UUID, from cache: PersistentCache<UUID, String>) async throws -> String {
  if let name = try await cache[id] { return name }
  cache[id] = "Ada"
  return try await cache.fetch(id) { "Ada" }
}

func keepPanda(in engine: some StorageEngine) async throws -> RemoteImage? {
  let storage = ObjectStorage<RemoteImage>(storage: engine)
  try await storage.store(RemoteImage(url: URL(filePath: "/panda.png")), forKey: CacheKey("panda"))
  return try await storage.object(forKey: CacheKey("panda"))
}
