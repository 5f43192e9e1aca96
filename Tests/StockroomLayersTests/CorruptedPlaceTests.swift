import Foundation
import StockroomCore
import StockroomEngines
import StockroomLayers
import TestFixtures
import Testing

@Suite("Errors of layers")
struct CorruptedPlaceTests {
  private static let key = CacheKey(verbatim: "k")

  @Test(
    "Corruption found by a layer is reported with the place",
    arguments: ["files", "sqlite", "lmdb", "leveldb"])
  func place(name: String) async throws {
    let directory = try TemporaryDirectory()
    func open(_ layers: String) async throws -> any StorageEngine {
      try await EngineCatalog.select([name + layers])[0].open(directory.url, .full)
    }
    let plain = try await open("")
    let own = try #require((plain as? any CustomStringConvertible)?.description)
    #expect(own.contains(directory.directory.path))
    try await plain.write(Data("neither".utf8), key: Self.key)
    try await plain.close()
    for layers in [
      "+checksummed", "+compressed", "+inventory", "+expiring", "+expiring+checksummed+instrumented",
    ] {
      let engine = try await open(layers)
      let transaction: @Sendable (any StorageTransaction) throws -> Void = { _ = try $0.read(key: Self.key) }
      var calls: [() async throws -> Void] = [
        { _ = try await engine.read(key: Self.key) },
        { _ = try await engine.scan(.all, limit: 1) },
        { try await engine.withTransaction(transaction) },
      ]
      if layers.hasPrefix("+expiring") {
        // The layer reads the entry before it writes.
        calls.append { try await engine.write([(Self.key, Data()), (CacheKey(verbatim: "l"), Data())]) }
      }
      for call in calls {
        let error = await #expect(throws: StorageError.self) { try await call() }
        #expect(error?.code == .corrupted)
        #expect(error?.message.hasPrefix("\(own): ") == true, "\(String(describing: error))")
      }
      try await engine.close()
    }
  }
}
