public import StockroomCore
import StockroomLayers

extension EngineCatalogue {
  /// One of the layers that can be put in front of any engine.
  public struct Layer: Sendable {
    /// How the layer is selected on a command line.
    public let name: String
    /// The layer in front of an engine.
    let wrap: @Sendable (any StorageEngine) -> any StorageEngine
  }

  /// Every layer.
  public static let layers = [
    Layer(name: "compressed") { base in
      func wrap(_ base: some StorageEngine) -> any StorageEngine { base.compressed(level: .fast) }
      return wrap(base)
    }
  ]

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

extension EngineCatalogue.Entry {
  /// The engine with layers in front of it, the last one outermost. Its name and title are those of the engine and of the layers,
  /// with a plus sign in between.
  public func layered(by layers: [EngineCatalogue.Layer]) -> Self {
    guard !layers.isEmpty else { return self }
    let name = ([name] + layers.map(\.name)).joined(separator: "+")
    var entry = Self(name, name, capabilities, database: database, open: unlayered)
    entry.layers = self.layers + layers
    return entry
  }

  /// The engine with its entries in another database, if it reaches a server.
  public func moved(to database: EngineCatalogue.Database) -> Self {
    self.database == nil ? self : EngineCatalogue.postgreSQL(database).layered(by: layers)
  }

  /// The engine with the layers of this entry in front of it.
  public func inFront(of base: any StorageEngine) -> any StorageEngine { layers.reduce(base) { $1.wrap($0) } }
}
