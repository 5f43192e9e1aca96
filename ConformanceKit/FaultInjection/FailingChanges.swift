import Foundation
import StockroomCore
import StockroomKitSupport

/// Makes one system call fail while one method changes something, or while the engine is opened or closed:
/// for every method and every call that it makes.
struct FailingChanges: CheckTask {
  let place: URL
  let methods: [ChangeMethod]
  /// Whether batches are atomic.
  let isAtomic: Bool
  let seed: UInt64
  /// The maximum number of faults. Nil for all.
  let limit: Int?

  /// What happens while a call fails.
  private enum Phase: Sendable {
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

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    let interceptor = try SystemCallInterceptor.shared()
    defer { interceptor.end() }
    var store = FaultedStore(at: place, isAtomic: isAtomic, interceptor, makeEngine)
    var counts: [(part: Phase, calls: [SystemCall: Int])] = []
    for phase in [.opening, .closing] + methods.map(Phase.change) {
      try note("\(phase.description) with nothing failing")
      try await prepare(&store, isCold: true)
      try await pass(phase, 0, &store, fault: nil)
      counts.append((phase, interceptor.observation.counts))
    }
    let trials = faults(in: counts, seed: seed, limit: limit)
    if trials.isEmpty { throw Skip(reason: "The engine makes no system calls.") }
    var random = SeededRandom(seed: seed)
    for (number, (phase, fault)) in trials.enumerated() {
      let when = "after \(fault) during \(phase.description)"
      try note("the steps \(when)")
      do {
        // An engine with entries in its cache may make fewer calls, so that this call does not occur.
        for isCold in Bool.random(using: &random) ? [true] : [false, true] {
          if try await perform(phase, fault, number, &store, isCold: isCold) { break }
        }
      } catch let violation as Violation {
        throw Violation("\(when), \(violation.description)", rule: violation.rule)
      }
    }
    try await store.close()
  }

  /// Opens the store with the same few entries every time.
  ///
  /// - Parameter isCold: Whether its cache is empty.
  private func prepare(_ store: inout FaultedStore, isCold: Bool) async throws {
    try await store.close()
    store.arm(nil)
    store.stage = "before anything has failed"
    try await store.open()
    try await store.change(.removeAll, [.removeAll])
    try await store.change(.writeMany, Self.entries)
    try await store.noteTimes()
    if !isCold { return }
    try await store.close()
    try await store.open()
  }

  /// Performs the phase while the call fails.
  private func pass(
    _ phase: Phase, _ number: Int, _ store: inout FaultedStore, fault: SystemFault?
  ) async throws {
    switch phase {
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

  /// - Returns: Whether the call that was to fail occurred.
  private func perform(
    _ phase: Phase, _ fault: SystemFault, _ number: Int, _ store: inout FaultedStore, isCold: Bool
  ) async throws -> Bool {
    try await prepare(&store, isCold: isCold)
    store.stage = "with one call failing"
    try await pass(phase, number, &store, fault: fault)
    let hasFailed = store.hasFailed
    store.disarm()
    store.stage = "with nothing failing any more"
    if case .closing = phase { try await store.open() }
    let imported: Set<CacheKey> =
      if case .change(.writeEntries) = phase {
        Set(operations(of: .writeEntries, number).compactMap(\.key))
      } else {
        []
      }
    try await store.readEverything()
    // An engine that could not read an entry may have treated it as a new one.
    try await store.expectTimes(exceptOf: imported)
    try await store.change(.write, [.write(data("afterwards"), key: key("afterwards"))])
    try await store.close()
    try await expectNothingOpen(in: place)
    try await store.open()
    try await store.readEverything()
    try await store.expectTimes(exceptOf: imported)
    return hasFailed
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
