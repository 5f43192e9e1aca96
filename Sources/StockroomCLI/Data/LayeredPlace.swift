import ArgumentParser
import StockroomCore
import StockroomMemory

/// A place with the layers in front of it.
struct LayeredPlace: Sendable {
  let place: Place
  private let layers: [PlaceLayer]
  private let keys: PlaceKeys

  /// - Parameter optionPrefix: The prefix of the options that contain the texts, for messages: `--` or `--to-`.
  /// - Throws: `ValidationError` if a text is invalid, or if a layer and the key files do not match.
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

  /// Opens the place with its layers, calls `body` with the outermost layer, and closes the place.
  ///
  /// The key files and the layers are checked first, so that the place is not created if they cannot be used.
  ///
  /// - Throws: ``PlaceFailure``, which names the place, for every `StorageError` and for ``PlaceAbsent``; other errors
  ///   of `body` unchanged.
  func withEngine<Result>(
    for use: Place.Use, _ body: (any StorageEngine) async throws -> Result
  ) async throws -> Result {
    try await PlaceFailure.naming(place) {
      let keys = layers.contains(where: \.needsKeys) ? try keys.read() : nil
      // Checks the layers on an engine in memory, before the place is opened.
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
