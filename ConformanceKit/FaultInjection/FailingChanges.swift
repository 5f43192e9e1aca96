import Foundation
import StockroomCore
import StockroomKitSupport

/// Has one call of the system fail while one method changes something, or while the engine is opened or closed: for every method and
/// every call that it makes.
struct FailingChanges: CheckTask {
  let place: URL
  let methods: [ChangeMethod]
  /// Whether batches are atomic.
  let isAtomic: Bool
  let seed: UInt64
  /// How many faults there are at most. Nil for all.
  let limit: Int?

  /// What is done while a call fails.
  private enum Moment: Sendable {
    case opening, closing
    case change(ChangeMethod)

    /// A clause after "during".
    var description: String {
      switch self {
      case .opening: "opening"
      case .closing: "close()"
      case .change(let method): method.call
      }
    }
  }

  /// What fails, and when.
  private struct Trial: Sendable {
    let moment: Moment
    let fault: SystemFault
  }

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    let interceptor = try SystemCallInterceptor.shared()
    defer { interceptor.end() }
    var store = FaultedStore(at: place, isAtomic: isAtomic, interceptor, makeEngine)
    var trials: [[Trial]] = []
    for moment in [.opening, .closing] + methods.map(Moment.change) {
      try note("\(moment.description) with nothing failing")
      try await prepare(&store)
      try await pass(moment, 0, &store, fault: nil)
      for (call, count) in interceptor.observation.counts.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
        trials.append(SystemFault.all(of: call, count).map { Trial(moment: moment, fault: $0) })
      }
    }
    if trials.isEmpty { throw Skip(reason: "The engine makes no calls of the system.") }
    var random = SeededRandom(seed: seed)
    let chosen = inTurn(trials.map { $0.shuffled(using: &random) }.shuffled(using: &random), limit: limit)
    for (number, trial) in chosen.enumerated() {
      let when = "after \(trial.fault) during \(trial.moment.description)"
      try note("what comes \(when)")
      try await prepare(&store, isCold: number.isMultiple(of: 2))
      do {
        try await perform(trial, number, &store)
      } catch let violation as Violation {
        throw Violation("\(when), \(violation.description)", rule: violation.rule)
      }
    }
    try await store.close()
  }

  /// Opens it with the same few entries every time.
  ///
  /// - Parameter isCold: Whether it knows nothing of them yet.
  private func prepare(_ store: inout FaultedStore, isCold: Bool = true) async throws {
    try await store.close()
    store.arm(nil)
    store.stage = "before anything has failed"
    try await store.open()
    try await store.change(.removeAll, [.removeAll])
    try await store.change(.writeMany, Self.entries)
    if !isCold { return }
    try await store.close()
    try await store.open()
  }

  /// Does what is to be done while the call fails.
  private func pass(
    _ moment: Moment, _ number: Int, _ store: inout FaultedStore, fault: SystemFault?
  ) async throws {
    switch moment {
    case .opening:
      try await store.close()
      store.arm(fault)
      try await store.open()
    case .closing:
      store.arm(fault)
      try await store.close()
    case .change(let method):
      store.arm(fault)
      try await store.change(method, operations(of: method, number))
    }
  }

  private func perform(_ trial: Trial, _ number: Int, _ store: inout FaultedStore) async throws {
    store.stage = "with one call failing"
    try await pass(trial.moment, number, &store, fault: trial.fault)
    store.disarm()
    store.stage = "with nothing failing any more"
    if case .closing = trial.moment { try await store.open() }
    try await store.lookAtAll()
    try await store.change(.write, [.write(data("afterwards"), key: key("afterwards"))])
    try await store.close()
    try await store.open()
    try await store.lookAtAll()
  }

  private static let entries: [StorageOperation] = [
    .write(noise(300, seed: 1), key: longKey("first")), .write(noise(700, seed: 2), key: key("second")),
    .write(noise(90, seed: 3), key: key("third")), .write(noise(40_000, seed: 4), key: key("large")),
    .write(noise(200, seed: 5), key: key("last")),
  ]

  private func operations(of method: ChangeMethod, _ number: Int) -> [StorageOperation] {
    func write(_ size: Int, _ key: CacheKey) -> StorageOperation {
      .write(noise(size, seed: UInt64(100 + 10 * number) + UInt64(size)), key: key)
    }
    return switch method {
    case .write: [write(500, key("second"))]
    case .writeMany: [write(400, longKey("first")), write(600, key("new")), write(80, key("third"))]
    case .writeEntries: [write(350, key("second")), write(150, longKey("new"))]
    case .apply: [write(250, key("new")), .remove(key: key("third")), write(30_000, key("large"))]
    case .transaction: [write(450, key("second")), .remove(key: longKey("first")), write(110, key("new"))]
    case .remove: [.remove(key: longKey("first"))]
    case .removeMany: [.remove(key: key("second")), .remove(key: key("absent")), .remove(key: key("large"))]
    case .removeAll: [.removeAll]
    }
  }
}
