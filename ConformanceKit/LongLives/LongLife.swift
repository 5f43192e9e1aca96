#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// A long series of changes of few keys: hundreds of thousands of writes, overwrites and removals, until logs
/// are compacted, tables merged, pages split and counters wrapped.
///
/// After each call it reads a key. Now and then it compares all entries with the expected ones.
struct LongLife {
  /// The keys that are written and removed.
  private static let keys = ConformanceKit.keys(48, prefix: "life-")
  /// Keys that are only written at the beginning and must stay unchanged.
  private static let still = ConformanceKit.keys(8, prefix: "still-")

  /// The operations of the call with this number, counted from 1. All written values differ, except two empty ones.
  static func operations(of number: Int, seed: UInt64) -> [StorageOperation] {
    var random = SeededRandom(seed: seed, number: number)
    func write(_ key: CacheKey, _ part: Int = 0) -> StorageOperation {
      let isLarge = part == 0 && number % 97 == 0
      let text = "call \(number), \(part)\n"
      return .write(data(text) + random.bytes(isLarge ? 5_000 : random.next(upTo: 48)), key: key)
    }
    func someKey() -> CacheKey { keys[random.next(upTo: keys.count)] }
    // A compaction may take an empty value for a removal.
    if number == still.count || number == 2 * still.count { return [.write(Data(), key: still[0])] }
    if number < 2 * still.count { return [write(still[number % still.count])] }
    switch number % 16 {
    case 7: return (0..<30).map { write(someKey(), $0) }
    case 11: return (0..<8).map { _ in .remove(key: someKey()) }
    case 15:
      let key = someKey()
      return [.remove(key: key), write(key), .remove(key: someKey()), write(someKey(), 1)]
    case 1, 5, 9: return [.remove(key: someKey())]
    default: return [write(someKey())]
    }
  }

  private let context: CheckContext
  /// Whether the engine is closed and opened again now and then.
  private let isReopened: Bool
  private let place: URL
  private let steps: NumberedSteps
  private var expected: ExpectedContents
  private var engine: EngineUnderTest
  private var looks = 0

  private init(_ context: CheckContext, at place: URL, isReopened: Bool) async throws {
    (self.context, self.place, self.isReopened) = (context, place, isReopened)
    steps = NumberedSteps(batches: NumberedBatches(seed: context.budget.seed), kind: .life)
    expected = ExpectedContents(in: context.capabilities)
    engine = try await context.open(place)
  }

  /// Makes the calls, and fails if any entry is lost, restored, reordered or has wrong times. The violation names the
  /// first call after which the fault is visible.
  static func run(_ context: CheckContext, _ rounds: RoundLimit, isReopened: Bool) async throws {
    var life = try await LongLife(context, at: context.place, isReopened: isReopened)
    var (done, lastLook) = (0, 0)
    do {
      for _ in rounds {
        try await life.call(done + 1)
        done += 1
        if isLookDue(after: done, lastLook) {
          try await life.look()
          lastLook = done
        }
      }
      try await life.look()
      try await context.close(life.engine)
    } catch let violation as Violation {
      // Background work of the engine may delay other checks.
      try? await context.close(life.engine)
      throw try await first(context, after: lastLook, upTo: done + 1, isReopened, violation)
    }
  }

  /// Repeats the calls up to the last one after which everything was right. From there, it compares everything after
  /// each call.
  private static func first(
    _ context: CheckContext, after lastGood: Int, upTo end: Int, _ isReopened: Bool, _ found: Violation
  ) async throws -> Violation {
    let place = context.root.appending(path: "again", directoryHint: .isDirectory)
    var life = try await LongLife(context, at: place, isReopened: isReopened)
    var lastLook = 0
    for number in 1...end {
      context.noteProgress()
      do {
        try await life.call(number)
        // Reopens at the same points as the first run, since opening may cause the fault.
        if number > lastGood || isReopened && isLookDue(after: number, lastLook) {
          try await life.look()
          lastLook = number
        }
      } catch let violation as Violation {
        return named(violation, "after \(number) calls, and not before")
      }
    }
    return named(found, "after at most \(end) calls (there was no failure after \(lastGood) calls)")
  }

  /// Whether to compare everything after this many calls: less often as their number grows.
  private static func isLookDue(after done: Int, _ lastLook: Int) -> Bool {
    done >= lastLook + max(50, lastLook / 16)
  }

  private static func named(_ violation: Violation, _ when: String) -> Violation {
    Violation(
      "\(when), \(violation)", rule: violation.rule, evidence: violation.evidence, seed: violation.seed)
  }

  /// Makes a call, and reads one key.
  private mutating func call(_ number: Int) async throws {
    try await steps.perform(number, on: engine)
    expected.apply(steps.operations(of: number))
    let key =
      number % 8 == 0 ? Self.still[number / 8 % Self.still.count] : Self.keys[number * 31 % Self.keys.count]
    let found = try await engine.read(key: key)
    let wanted = expected.value(of: key)
    guard found != wanted else { return }
    throw Violation(
      "read(key:) of \(key) was \(describe(found as Any)) instead of \(describe(wanted as Any))", rule: .w1)
  }

  /// Compares everything, and now and then again after reopening.
  private mutating func look() async throws {
    context.noteProgress()
    looks += 1
    do {
      try await expected.verify(engine)
    } catch let violation as Violation where violation.rule == .w6 {
      // No process has died and no engine was closed since the write was acknowledged.
      throw Violation(violation.description, rule: .w1)
    }
    guard isReopened, looks % 4 == 0 else { return }
    engine = try await context.reopen(engine, at: place)
    try await expected.verify(engine)
  }
}
