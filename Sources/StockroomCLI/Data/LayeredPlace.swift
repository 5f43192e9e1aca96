import ArgumentParser
import StockroomCore
import StockroomMemory

/// A place with the layers in front of it.
struct LayeredPlace: Sendable {
  let place: Place
  private let layers: [PlaceLayer]
  private let keys: PlaceKeys

  /// - Parameter optionPrefix: What the options begin with that the texts are from.
  /// - Throws: `ValidationError`.
  init(
    _ location: String, layers: [String], keyFiles: [String], namesKeyFile: String?, optionPrefix: String
  ) throws {
    let (keyOption, namesKeyOption) = (optionPrefix + "key-file", optionPrefix + "names-key-file")
    place = try Place(location)
    self.layers = try layers.map(PlaceLayer.init)
    keys = PlaceKeys(
      values: try keyFiles.map { try .init($0, keyOption) },
      names: try namesKeyFile.map { try .init($0, namesKeyOption) })
    let needsKeys = self.layers.contains(where: \.needsKeys)
    if needsKeys, !PlaceLayer.canEncrypt {
      throw ValidationError(
        "This command was built without the trait Encryption, so it has no layer that encrypts.")
    }
    let layerOption = optionPrefix + "layer"
    let isHidden = self.layers.contains(.hidden)
    if needsKeys, keys.values.isEmpty {
      let layer = self.layers.contains(.encrypted) ? "encrypted" : "hidden"
      throw ValidationError("\(layerOption) \(layer) needs \(keyOption) NAME=FILE.")
    }
    if !needsKeys, !keys.values.isEmpty {
      throw ValidationError("\(keyOption) needs \(layerOption) encrypted or hidden.")
    }
    if isHidden, keys.names == nil {
      throw ValidationError("\(layerOption) hidden needs \(namesKeyOption) NAME=FILE.")
    }
    if !isHidden, keys.names != nil {
      throw ValidationError("\(namesKeyOption) needs \(layerOption) hidden.")
    }
  }

  /// Opens the place with its layers, lets `body` work with it, and closes it.
  ///
  /// What the layers need is read and checked first, so that no place is made for nothing.
  ///
  /// - Throws: ``PlaceFailure``, which names the place, for what the engine throws.
  func withEngine<Result>(
    for use: Place.Use, _ body: (any StorageEngine) async throws -> Result
  ) async throws -> Result {
    try await PlaceFailure.naming(place) {
      let keys = layers.contains(where: \.needsKeys) ? try keys.read() : nil
      // In front of any engine, which says whether they can be used at all.
      _ = try layered(MemoryStorageEngine(), keys)
      let needsMore = place.isPostgreSQL && layers.contains(where: \.needsTransactions)
      let base = try await place.open(for: use == .reading && needsMore ? .writing : use)
      let result: Result
      do {
        result = try await body(layered(base, keys))
      } catch {
        // The first error is the cause.
        try? await base.close()
        throw error
      }
      try await base.close()
      return result
    }
  }

  private func layered(
    _ base: any StorageEngine, _ keys: PlaceKeys.Contents?
  ) throws -> any StorageEngine {
    var engine = base
    for layer in layers { engine = try layer.withLayer(on: engine, keys) }
    return engine
  }
}
