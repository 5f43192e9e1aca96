public import StockroomCore
import StockroomLayers
import StockroomStore
import Synchronization

extension EngineCatalog {
  /// One of the layers that can be put in front of any engine.
  public struct Layer: Sendable {
    /// How the layer is selected on a command line.
    public let name: String
    /// What an engine promises behind it that it has not promised before.
    var withCapabilities: EngineCapabilities = []
    /// What an engine no longer promises behind it.
    var withoutCapabilities: EngineCapabilities = []
    /// The layer in front of an engine.
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
      // What other processes write is read a moment later.
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

    /// The same for all processes. What they encrypt is no secret.
    private static func key(_ identifier: String) throws -> EncryptionKey {
      try EncryptionKey(identifier: identifier, bytes: [UInt8](repeating: 7, count: EncryptionKey.byteCount))
    }

    private static func keyring() throws -> Keyring { try Keyring(key("values")) }
  #else
    private static let encryptedLayers: [Layer] = []
  #endif

  /// The names of all layers.
  public static var listOfLayers: String { layers.map(\.name).joined(separator: ", ") }

  /// The layers with these names, in this order.
  ///
  /// - Throws: ``UnknownEngine`` for the first name that no layer has.
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
  /// The engine with layers in front of it, the last one outermost. Its name and title are those of the engine and of the layers,
  /// with a plus sign in between.
  public func layered(by layers: [EngineCatalog.Layer]) -> Self {
    guard !layers.isEmpty else { return self }
    let name = ([name] + layers.map(\.name)).joined(separator: "+")
    let promises = layers.reduce(capabilities) {
      $0.union($1.withCapabilities).subtracting($1.withoutCapabilities)
    }
    var entry = Self(name, name, promises, database: database, open: unlayered)
    entry.layers = self.layers + layers
    return entry
  }

  /// The engine with its entries in another database, if it reaches a server.
  public func moved(to database: EngineCatalog.Database) -> Self {
    self.database == nil ? self : EngineCatalog.postgreSQL(database).layered(by: layers)
  }

  /// The engine with the layers of this entry in front of it.
  public func inFront(of base: any StorageEngine) throws -> any StorageEngine {
    try layers.reduce(base) { try $1.wrap($0) }
  }
}

/// Counts calls: about the least that an instrument can cost.
private final class CallCounter: StorageInstrument {
  private let calls = Atomic(0)

  func record(_ call: StorageCall) { calls.wrappingAdd(1, ordering: .relaxed) }
}
