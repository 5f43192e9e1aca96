import ArgumentParser
import Foundation
import StockroomCore

/// The format of what a command about data prints.
enum DataFormat: String, CaseIterable, ExpressibleByArgument {
  case text, json
}

/// The place that a command is about, and the layers in front of it.
struct PlaceOptions: ParsableArguments {
  @Argument(
    help: ArgumentHelp(
      "The place: \(Place.spellings)[?namespace=NAME].", valueName: "place"))
  var location: String

  @Option(
    name: .customLong("layer"),
    help: ArgumentHelp(
      "A layer in front of the place, as the program that writes it has; repeat it for several, the last one outermost. "
        + "(values: \(PlaceLayer.spellings))", valueName: "layer"))
  var layerTexts: [String] = []

  @Option(
    name: .customLong("key-file"),
    help: ArgumentHelp(
      "For the layers encrypted and hidden: the name of a key, and the file that it is in. The first one encrypts; repeat it for those "
        + "that were used before.", valueName: "name=file"))
  var keyFileTexts: [String] = []

  @Option(
    name: .customLong("names-key-file"),
    help: ArgumentHelp(
      "For the layer hidden: the key that hides the names of entries.", valueName: "name=file"))
  var namesKeyFileText: String?

  func validate() throws {
    _ = try place
    let (layers, keys) = try (layers, keys)
    let needsKeys = layers.contains(where: \.needsKeys)
    if needsKeys, !PlaceLayer.canEncrypt {
      throw ValidationError(
        "This command was built without the trait Encryption, so it has no layer that encrypts.")
    }
    if needsKeys == keys.values.isEmpty {
      throw ValidationError("The layers encrypted and hidden take a --key-file, and no others do.")
    }
    if layers.contains(.hidden) != (keys.names != nil) {
      throw ValidationError("The layer hidden takes a --names-key-file, and no other does.")
    }
    try Self.checkArguments()
  }

  var place: Place {
    get throws { try Place(location) }
  }

  private var layers: [PlaceLayer] {
    get throws { try layerTexts.map(PlaceLayer.init) }
  }

  private var keys: PlaceKeys {
    get throws {
      PlaceKeys(
        values: try keyFileTexts.map { try .init($0, "--key-file") },
        names: try namesKeyFileText.map { try .init($0, "--names-key-file") })
    }
  }

  /// Swift replaces bytes of an argument that are no UTF-8, after which a key or a path would be another one.
  private static func checkArguments() throws {
    for index in 0..<Int(CommandLine.argc) {
      guard let argument = CommandLine.unsafeArgv[index] else { continue }
      guard String(validatingCString: argument) != nil else {
        throw ValidationError("Argument \(index) is not UTF-8: \(String(cString: argument).escaped).")
      }
    }
  }

  /// Opens the place with its layers, lets `body` work with it, and closes it.
  ///
  /// - Throws: ``PlaceFailure``, which names the place, for what the engine throws.
  func withEngine<Result>(
    for use: Place.Use, _ body: (any StorageEngine) async throws -> Result
  ) async throws -> Result {
    let (place, layers, keys) = try (place, layers, keys)
    return try await PlaceFailure.naming(place) {
      let needsMore = place.isPostgreSQL && layers.contains(where: \.needsTransactions)
      let base = try await place.open(for: use == .reading && needsMore ? .writing : use)
      let result: Result
      do {
        var engine = base
        for layer in layers { engine = try layer.inFront(of: engine, keys) }
        result = try await body(engine)
      } catch {
        // The first error is the cause.
        try? await base.close()
        throw error
      }
      try await base.close()
      return result
    }
  }
}

/// How a key is written.
struct KeyOptions: ParsableArguments {
  @Flag(
    help:
      "Keys are hashed, as CacheKey(_:) does, instead of taken as they are written, as CacheKey(verbatim:) does."
  )
  var hashed = false

  /// - Throws: `ValidationError` if no entry can have the key.
  func key(_ text: String) throws -> CacheKey { hashed ? CacheKey(text) : try Self.verbatim(text) }

  /// - Throws: `ValidationError` if no entry can have the key.
  static func verbatim(_ text: String) throws -> CacheKey {
    let key = CacheKey(verbatim: text)
    do {
      try key.validate()
    } catch let error as StorageError {
      throw ValidationError(error.message)
    }
    return key
  }
}
