import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

/// A built-in engine, as an argument of tests that run on every engine.
struct AnyEngine: Sendable, CustomTestStringConvertible {
  static let all = EngineCatalog.onThisMachine.map(AnyEngine.init)
  static let persistent = all.filter { $0.entry.capabilities.contains(.persistent) }

  let entry: EngineCatalog.Entry

  var name: String { entry.name }
  var testDescription: String { entry.title }

  func open(_ directory: TemporaryDirectory) async throws -> any StorageEngine {
    try await entry.open(directory.url, .process)
  }
}
