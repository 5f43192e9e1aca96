import ConformanceKit
import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import TestFixtures
import Testing

/// A layer that changes nothing.
private struct PlainLayer<Base: StorageEngine>: StorageLayer {
  let base: Base
}

/// A layer that stores values as they are.
private struct PlainValueLayer<Base: StorageEngine>: ValueLayer {
  let base: Base
  func encode(_ value: Data, key: CacheKey) throws -> Data { value }
  func decode(_ stored: Data, key: CacheKey) throws -> Data { stored }
}

/// A layer written without ``StorageLayer`` that forwards the required methods only, and so no batches.
private struct ForgetfulLayer<Base: StorageEngine>: StorageEngine {
  let base: Base
  var capabilities: EngineCapabilities { base.capabilities }
  func write(_ data: Data, key: CacheKey) async throws { try await base.write(data, key: key) }
  func read(key: CacheKey) async throws -> Data? { try await base.read(key: key) }
  func remove(key: CacheKey) async throws { try await base.remove(key: key) }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}

@Suite("Forwarding by layers")
struct ForwardingTests {
  private typealias Method = FailingStorageEngine.Call.Method
  private let base = FailingStorageEngine(MemoryStorageEngine())

  @Test("A layer forwards each requirement to the same requirement")
  func forwards() async throws {
    let layer = PlainLayer(base: base)
    try await callEverything(layer)
    #expect(base.calls.map(\.method) == Method.allCases)
    #expect(layer.capabilities == base.capabilities)
  }

  @Test("A layer that changes values does not split requests")
  func forwardsValues() async throws {
    try await callEverything(PlainValueLayer(base: base))
    // Values are decoded with their keys. A verification also reads them, a page at a time.
    let others: [Method: [Method]] = [
      .readMany: [.readDataAndKeys], .readAllData: [.readAllDataAndKeys],
      .verify: [.verify, .allKeys, .readDataAndKeys],
    ]
    #expect(base.calls.map(\.method) == Method.allCases.flatMap { others[$0] ?? [$0] })
  }

  @Test("A verification reads only a few large values at a time")
  func verifiesLargeValues() async throws {
    let recorder = CallRecorder()
    let layer = PlainValueLayer(base: MemoryStorageEngine().instrumented(by: recorder))
    try await layer.write((0..<64).map { (CacheKey(verbatim: "\($0)"), Data(count: 200_000)) })
    try await layer.verify()
    let sizes = recorder.take().map(\.bytesRead)
    #expect(sizes.reduce(0, +) == 64 * 200_000)
    #expect(sizes.allSatisfy { $0 <= 8 * 200_000 })
  }

  @Test("The layers implement every requirement of the protocol")
  func isComplete() throws {
    let requirements = try functions(in: "Sources/StockroomCore/StorageEngine.swift")
    #expect(requirements.count == Method.allCases.count)
    #expect(try functions(in: "Sources/StockroomLayers/StorageLayer.swift") == requirements)
  }

  /// The names and parameters of the functions in a file.
  private func functions(in path: String) throws -> [String] {
    let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    let source = try String(contentsOf: root.appending(path: path), encoding: .utf8)
    return source.matches(of: /(?m)^  (?:public )?func ([^{]+?\) async throws)/).map { match in
      match.1.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }
  }

  @Test(
    "An error of the engine below is rethrown, and one invalid key rejects the batch before anything is encoded"
  )
  func errors() async throws {
    let layer = PlainValueLayer(base: base)
    base.failCall(with: StorageError(.diskFull, "Full")) { $0.isWrite }
    let error = await #expect(throws: StorageError.self) { try await layer.write(Data(), key: .init("a")) }
    #expect(error?.code == .diskFull)
    base.resetCalls()
    for work in [
      { try await layer.write([(.init("a"), Data()), (.init(verbatim: ""), Data())]) },
      { try await layer.apply([.write(Data(), key: .init("a")), .remove(key: .init(verbatim: ""))]) },
      { try await layer.write(Data(), key: .init(verbatim: "")) },
    ] as [() async throws -> Void] {
      let error = await #expect(throws: StorageError.self) { try await work() }
      #expect(error?.code == .invalidKey)
    }
    #expect(base.calls.isEmpty)
  }

  @Test("The conformance kit finds a layer that does not forward all requirements")
  func forgetful() async throws {
    let suite = ConformanceSuite("Forgetful", capabilities: [.atomicBatches, .transactions, .changeFeed]) {
      _ in
      ForgetfulLayer(base: MemoryStorageEngine())
    }
    for rule in [ContractRule.w4, .t1, .x1] {
      let checks = suite.checks.filter { $0.rule == rule }
      var failures = 0
      for check in checks where failures == 0 {
        if await check.outcome().failure != nil { failures += 1 }
      }
      #expect(failures == 1, "\(rule)")
    }
  }
}
