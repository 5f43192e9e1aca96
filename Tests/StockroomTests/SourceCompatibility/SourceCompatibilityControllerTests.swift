import Foundation
import Observation
import Stockroom
import StockroomFileSystem
import TestFixtures
import Testing

struct RemoteImage: Codable, Sendable, Equatable, Identifiable {
  let createdAt: Date
  let url: URL
  let width: Float
  let height: Float
  let dataRepresentation: Data

  var id: String {
    url.absoluteString
  }
}

extension Store where Item == RemoteImage {
  static let imagesStore = Store<RemoteImage>(
    storage: SQLiteStorageEngine.default(appendingPath: "Items"),
    cacheIdentifier: \.id
  )
}

/// A controller that fetches images, and saves or deletes them in a `Store`.
@MainActor @Observable
final class ImagesController {
  /// The `Store` that images are saved in.
  @ObservationIgnored
  @Stored(in: .imagesStore) var images

  func fetchImage() async throws -> RemoteImage {
    let number = images.count + 1
    let url = try #require(URL(string: "https://image.redpanda.club/\(number)"))
    return RemoteImage(
      createdAt: .now, url: url, width: 640, height: 480,
      dataRepresentation: Data(repeating: 7, count: number))
  }

  /// Saves an image to the `Store` in memory and on disk.
  func saveImage(image: RemoteImage) async throws {
    try await self.$images.insert(image)
  }

  /// Removes one image from the `Store` in memory and on disk.
  func removeImage(image: RemoteImage) async throws {
    try await self.$images.remove(image)
  }

  /// Removes all of the images from the `Store` in memory and on disk.
  func clearAllImages() async throws {
    try await self.$images.removeAll()
  }

  func replaceAllImages(with images: [RemoteImage]) async throws {
    try await self.$images
      .removeAll()
      .insert(images)
      .run()
  }
}

@MainActor @Suite("Source compatibility: controllers") struct SourceCompatibilityControllerTests {
  @Test("Two controllers on one store show the same images, which are there after a restart", .ownThreads)
  func images() async {
    await #expect(processExitsWith: .success) {
      try await withOwnDataDirectory { try await SourceCompatibilityControllerTests.useImages() }
    }
  }

  static func useImages() async throws {
    let card = ImagesController()
    let carousel = ImagesController()
    let image = try await card.fetchImage()
    try await card.saveImage(image: image)
    try await card.saveImage(image: image)
    try await card.saveImage(image: card.fetchImage())
    try #require(carousel.images.sorted(by: { $0.createdAt > $1.createdAt }).count == 2)

    let afterwards = try await Store<RemoteImage>(
      storage: SQLiteStorageEngine.default(appendingPath: "Items")
    )
    try #require(afterwards.items == card.images)

    try await carousel.removeImage(image: image)
    try #require(card.images.count == 1)
    try await card.replaceAllImages(with: [image])
    try #require(carousel.images == [image])
    try await card.clearAllImages()
    try #require(carousel.images.isEmpty)
  }
}

// Deprecated names that exist for source compatibility only. Calls through the protocol cause no warnings although the
// witnesses are deprecated.
@MainActor protocol DeprecatedCode {
  func run(in place: Place) async throws
  func runInDefaultPlaces() async throws
}

private struct Garment: Codable, Sendable, Equatable {
  var name: String
  var id: String { name }
}

private struct DeprecatedNames: DeprecatedCode {
  @available(*, deprecated)
  func run(in place: Place) async throws {
    let store = try await Store<Garment>(
      storage: place.engine(),
      cacheIdentifier: \.id
    )

    // Add an item to the Store
    let coat = Garment(name: "coat")
    try await store.add(coat)

    // Remove an item from the Store
    try await store.remove(coat)

    // Add two more items to the Store
    let purse = Garment(name: "purse")
    let belt = Garment(name: "belt")
    try await store.add([purse, belt])
    #expect(store.items == [purse, belt])

    // Clear the store by removing all the items at once
    try await store.removeAll()
    #expect(store.items == [])

    // Add an item, removing all of the current items first
    try await store.add([purse, belt], invalidationStrategy: .removeNone)
    try await store.add(coat, invalidationStrategy: .removeAll)
    #expect(store.items == [coat])

    try await store
      .removeAll()
      .add([belt])
      .run()
    #expect(store.items == [belt])

    let numbers = try await Store<Int>(storage: place.engine("numbers"), cacheIdentifier: \.description)
    try await numbers.removeAll().add(items: [1, 2, 3]).run()  // The Store now contains [1, 2, 3]
    #expect(numbers.items == [1, 2, 3])
    try await numbers.remove(1).add(items: [4, 5, 6]).run()  // The Store now contains [2, 3, 4, 5, 6]
    #expect(numbers.items == [2, 3, 4, 5, 6])
  }

  @available(*, deprecated)
  func runInDefaultPlaces() async throws {
    let store = try await Store<Garment>(
      storagePath: Store.documentsDirectory(appendingPathComponent: "Items"),
      cacheIdentifier: \.id
    )
    try await store.add(Garment(name: "coat"))

    func makeStore() -> Store<Garment> {
      Store<Garment>(
        storagePath: Store<Garment>.documentsDirectory(appendingPath: "Items"),
        cacheIdentifier: \.id
      )
    }
    let same = makeStore()
    try await same.itemsHaveLoaded()
    try #require(same.items.map(\.name) == ["coat"])

    let files = try await Store<Garment>(
      storage: DiskStorageEngine(directory: .defaultStorageDirectory(appendingPath: "Garments")),
      cacheIdentifier: \.id
    )
    try await files.add(Garment(name: "belt"))
    try #require(files.items.count == 1)
  }
}

@MainActor @Suite("Source compatibility: deprecated names") struct DeprecatedNameTests {
  @Test("Adding, removing and chaining", arguments: Place.names)
  func adding(_ name: String) async throws {
    let code: any DeprecatedCode = DeprecatedNames()
    try await code.run(in: Place(name))
  }

  @Test("Stores that are made with a path", .ownThreads)
  func paths() async {
    await #expect(processExitsWith: .success) {
      try await withOwnDataDirectory {
        let code: any DeprecatedCode = DeprecatedNames()
        try await code.runInDefaultPlaces()
      }
    }
  }
}
