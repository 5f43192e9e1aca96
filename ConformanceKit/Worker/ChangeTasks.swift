#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Opens the engine, makes changes one after the other, and closes it. Sends the number of each acknowledged change.
struct MakeChanges: WorkerTask {
  enum Change: Codable, Sendable {
    case call(ChangeCall)
    /// Writes the keys, several of them as a batch.
    case write([String])
    /// Removes the keys as a batch.
    case remove([String])
  }

  let changes: [Change]
  let place: URL

  init(_ changes: [Change], at place: URL) { (self.changes, self.place) = (changes, place) }

  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine, send: @Sendable (Int) throws -> Void
  ) async throws {
    let engine = try await open(place, makeEngine)
    for (number, change) in changes.enumerated() {
      switch change {
      case .call(let call): try await call.perform(on: engine)
      case .write(let names) where names.count == 1:
        let key = CacheKey(verbatim: names[0])
        try await engine.write(value(for: key), key: key)
      case .write(let names): try await engine.write(entries(names.map(CacheKey.init(verbatim:))))
      case .remove(let names): try await engine.remove(keys: names.map(CacheKey.init(verbatim:)))
      }
      try send(number)
    }
    try await engine.close()
  }
}

/// Opens the engine, subscribes, reports that by sending 0, and writes while another process does the same. Returns
/// when the feed has covered the writes of both.
struct ExchangeChanges: WorkerTask {
  let place: URL
  /// The prefix that distinguishes its keys from those of the other process.
  let share: String
  let other: String
  let count: Int
  let timeout: Duration

  static func key(_ number: Int, of share: String) -> CacheKey { CacheKey(verbatim: "\(share)/\(number)") }

  /// Writes an entry, and now and then overwrites a large one, so that logs grow until they are restarted.
  static func write(_ number: Int, of share: String, to engine: EngineUnderTest) async throws {
    try await engine.write(data("v"), key: key(number, of: share))
    if number.isMultiple(of: 4) {
      try await engine.write(
        noise(16_384, seed: UInt64(number)), key: CacheKey(verbatim: "\(share)/large \(number % 3)"))
    }
  }

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Int) throws -> Void
  ) async throws {
    let engine = try await open(place, makeEngine)
    let subscriber = try await ChangeSubscriber(to: engine, timeout: timeout)
    try send(0)
    async let written: Void = {
      for number in 0..<count {
        try await Self.write(number, of: share, to: engine)
        if number.isMultiple(of: 64) { try send(number) }
      }
    }()
    try await subscriber.expectCovered(
      (0..<count).flatMap { number in [share, other].map { Self.key(number, of: $0) } },
      "the writes of two processes at the same time")
    try await written
    try await engine.close()
  }
}
