import ArgumentParser
import Foundation
import StockroomCore

/// The output format of the commands that read or write a place.
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
      "A layer in front of the place, as in the program that writes to it; repeat it for several, the last one outermost. "
        + "(values: \(PlaceLayer.spellings))", valueName: "layer"))
  var layerTexts: [String] = []

  @Option(
    name: .customLong("key-file"),
    help: ArgumentHelp(
      "For the layers encrypted and hidden: the name of a key and its file. The first one encrypts; repeat it for those "
        + "that were used before.", valueName: "name=file"))
  var keyFileTexts: [String] = []

  @Option(
    name: .customLong("names-key-file"),
    help: ArgumentHelp(
      "For the layer hidden: the key that hides the names of entries.", valueName: "name=file"))
  var namesKeyFileText: String?

  func validate() throws { _ = try layered }

  var place: Place {
    get throws { try layered.place }
  }

  /// The place with its layers.
  var layered: LayeredPlace {
    get throws {
      try LayeredPlace(
        location, layers: layerTexts, keyFiles: keyFileTexts, namesKeyFile: namesKeyFileText,
        optionPrefix: "--")
    }
  }

  /// Opens the place with its layers, calls `body` with the outermost layer, and closes the place.
  ///
  /// - Throws: as ``LayeredPlace/withEngine(for:_:)``.
  func withEngine<Result>(
    for use: Place.Use, _ body: (any StorageEngine) async throws -> Result
  ) async throws -> Result {
    try await layered.withEngine(for: use, body)
  }
}

/// The place to which a command writes entries, and the layers in front of it.
struct TargetOptions: ParsableArguments {
  @Option(
    name: .customLong("to"),
    help: ArgumentHelp("The place to write to, which is created if it does not exist.", valueName: "place"))
  var location: String

  @Option(
    name: .customLong("to-layer"),
    help: ArgumentHelp(
      "A layer in front of that place; repeat it for several, the last one outermost.", valueName: "layer"))
  var layerTexts: [String] = []

  @Option(
    name: .customLong("to-key-file"),
    help: ArgumentHelp("As --key-file, for the layers of that place.", valueName: "name=file"))
  var keyFileTexts: [String] = []

  @Option(
    name: .customLong("to-names-key-file"),
    help: ArgumentHelp("As --names-key-file, for the layers of that place.", valueName: "name=file"))
  var namesKeyFileText: String?

  func validate() throws { _ = try layered }

  var layered: LayeredPlace {
    get throws {
      try LayeredPlace(
        location, layers: layerTexts, keyFiles: keyFileTexts, namesKeyFile: namesKeyFileText,
        optionPrefix: "--to-")
    }
  }
}

/// Whether keys are hashed.
struct KeyOptions: ParsableArguments {
  @Flag(
    help:
      "Hashes keys, as CacheKey(_:) does, instead of using them as they are, as CacheKey(verbatim:) does."
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
