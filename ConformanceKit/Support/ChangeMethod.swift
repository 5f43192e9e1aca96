#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The methods of an engine that change entries. Checks of all such methods use this list, so that none is
/// forgotten.
enum ChangeMethod: String, CaseIterable, Codable, Sendable {
  case write, writeMany, writeEntries, apply, transaction
  case remove, removeMany, removeAll

  /// The name of the method in sentences.
  var call: String {
    switch self {
    case .write: "write(_:key:)"
    case .writeMany: wayOfBatches.name
    case .writeEntries: wayOfImporting.name
    case .apply: wayOfApplying.name
    case .transaction: wayOfTransactions.name
    case .remove: "remove(key:)"
    case .removeMany: "remove(keys:)"
    case .removeAll: "removeAllData()"
    }
  }

  var needs: EngineCapabilities { self == .transaction ? .transactions : [] }

  /// Whether it removes keys instead of storing entries.
  var removes: Bool { self == .remove || self == .removeMany || self == .removeAll }

  /// Whether one call changes one key.
  var isOfOneKey: Bool { self == .write || self == .remove }

  /// The methods for an engine with these capabilities.
  static func all(_ capabilities: EngineCapabilities) -> [ChangeMethod] {
    allCases.filter { capabilities.isSuperset(of: $0.needs) }
  }

  /// The methods that store entries.
  static func writing(_ capabilities: EngineCapabilities) -> [ChangeMethod] {
    all(capabilities).filter { !$0.removes }
  }

  /// The method as a way of writing.
  var way: WayOfWriting { (call, { try await perform($1, in: $0) }) }

  /// Stores the entries, or removes their keys, in one call if the method takes several keys.
  func perform(_ entries: [(key: CacheKey, data: Data)], in engine: EngineUnderTest) async throws {
    switch self {
    case .write: for (key, data) in entries { try await engine.write(data, key: key) }
    case .writeMany: try await wayOfBatches.write(engine, entries)
    case .writeEntries: try await wayOfImporting.write(engine, entries)
    case .apply: try await wayOfApplying.write(engine, entries)
    case .transaction: try await wayOfTransactions.write(engine, entries)
    case .remove: for (key, _) in entries { try await engine.remove(key: key) }
    case .removeMany: try await engine.remove(keys: entries.map(\.key))
    case .removeAll: try await engine.removeAllData()
    }
  }

  /// Like ``perform(_:in:)``, but without a transaction if the engine keeps throwing `conflict`, as rule T4
  /// allows when many tasks write.
  func performAmongMany(_ entries: [(key: CacheKey, data: Data)], in engine: EngineUnderTest) async throws {
    guard self == .transaction else { return try await perform(entries, in: engine) }
    do {
      try await engine.withTransaction { for (key, data) in entries { try $0.write(data, key: key) } }
    } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .conflict {
      try await engine.write(entries)
    }
  }

  /// Performs the operations in a batch or transaction. Other methods must support their kind.
  func perform(_ operations: [StorageOperation], in engine: EngineUnderTest) async throws {
    switch self {
    case .apply: try await engine.apply(operations)
    case .transaction: try await engine.withTransaction { try $0.apply(operations) }
    case _ where removes: try await perform(operations.compactMap(\.removed).map { ($0, Data()) }, in: engine)
    default: try await perform(operations.compactMap(\.written), in: engine)
    }
  }
}
