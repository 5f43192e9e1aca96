public import StockroomCore
import StockroomLayers
import StockroomStore
import Synchronization

extension EngineCatalog {
  /// A layer that can be put in front of any engine.
  public struct Layer: Sendable {
    /// The name of the layer on a command line.
    public let name: String
    /// The capabilities that the layer adds.
    var withCapabilities: EngineCapabilities = []
    /// The capabilities that the layer removes.
    var withoutCapabilities: EngineCapabilities = []
    /// Puts the layer in front of an engine.
    let wrap: @Sendable (any StorageEngine) throws -> any StorageEngine
  }

  /// Every layer.
  public static let layers =
    [
      Layer(name: "compressed") { base in
        func wrap(_ base: some StorageEngine) -> any StorageEngine { base.compressed(level: .fast) }
        return wrap(base)
      },
      Layer(name: "namespaced") { base in
        func wrap(_ base: some StorageEngine) throws -> any StorageEngine { try base.namespaced("part") }
        return try wrap(base)
      },
      Layer(name: "checksummed") { base in
        func wrap(_ base: some StorageEngine) -> any StorageEngine { base.checksummed() }
        return wrap(base)
      },
      Layer(name: "inventory", withCapabilities: [.detectsCorruption]) { base in
        func wrap(_ base: some StorageEngine) throws -> any StorageEngine {
          try base.checksummedWithInventory()
        }
        return try wrap(base)
      },
      Layer(name: "expiring") { base in
        func wrap(_ base: some StorageEngine) -> any StorageEngine {
          base.expiring(after: .seconds(200 * 366 * 86_400))
        }
        return wrap(base)
      },
      // Writes of other processes become visible with a delay.
      Layer(name: "cached", withoutCapabilities: [.multiProcess]) { base in
        func wrap(_ base: some StorageEngine) -> any StorageEngine {
          base.cached(limit: CacheLimit(entries: 10_000, bytes: 64 << 20))
        }
        return wrap(base)
      },
      Layer(name: "instrumented") { base in
        func wrap(_ base: some StorageEngine) -> any StorageEngine { base.instrumented(by: CallCounter()) }
        return wrap(base)
      },
    ] + encryptedLayers

  #if canImport(CryptoKit) || Encryption
    private static let encryptedLayers = [
      Layer(name: "encrypted") { base in
        func wrap(_ base: some StorageEngine) throws -> any StorageEngine {
          base.encrypted(with: try keyring())
        }
        return try wrap(base)
      },
      Layer(name: "hidden", withoutCapabilities: [.orderedScans, .changeFeed]) { base in
        func wrap(_ base: some StorageEngine) throws -> any StorageEngine {
          base.encrypted(with: try keyring(), hidingKeysWith: try key("names"))
        }
        return try wrap(base)
      },
    ]

    /// The same key in every process. The encrypted data are not secret.
    private static func key(_ identifier: String) throws -> EncryptionKey {
      try EncryptionKey(identifier: identifier, bytes: [UInt8](repeating: 7, count: EncryptionKey.byteCount))
    }

    private static func keyring() throws -> Keyring { try Keyring(key("values")) }
  #else
    private static let encryptedLayers: [Layer] = []
  #endif

  /// The names of all layers.
  public static var listOfLayers: String { layers.map(\.name).joined(separator: ", ") }

  /// The layers with these names, in the order of the names.
  ///
  /// - Throws: ``UnknownEngine`` for the first name without a layer.
  public static func selectLayers(_ names: [String]) throws -> [Layer] {
    try names.map { name in
      guard let layer = layers.first(where: { $0.name == name }) else {
        throw UnknownEngine(name: name, kind: "layer", list: listOfLayers)
      }
      return layer
    }
  }
}

extension EngineCatalog.Entry {
  /// The engine with layers in front of it, the last one outermost. Its name and title list the engine and
  /// the layers, separated by plus signs.
  public func layered(by layers: [EngineCatalog.Layer]) -> Self {
    guard !layers.isEmpty else { return self }
    let name = ([name] + layers.map(\.name)).joined(separator: "+")
    let promises = layers.reduce(capabilities) {
      $0.union($1.withCapabilities).subtracting($1.withoutCapabilities)
    }
    var entry = Self(name, name, promises, database: database, open: openBase)
    entry.layers = self.layers + layers
    return entry
  }

  /// The engine with its entries in another database. Does nothing for an engine without a server.
  public func moved(to database: EngineCatalog.Database) -> Self {
    self.database == nil ? self : EngineCatalog.postgreSQL(database).layered(by: layers)
  }

  /// Puts the layers of this entry in front of the engine.
  public func withLayers(on base: any StorageEngine) throws -> any StorageEngine {
    try layers.reduce(base) { try $1.wrap($0) }
  }
}

/// Counts calls, at about the lowest cost that an instrument can have.
private final class CallCounter: StorageInstrument {
  private let calls = Atomic(0)

  func record(_ call: StorageCall) { calls.wrappingAdd(1, ordering: .relaxed) }
}
