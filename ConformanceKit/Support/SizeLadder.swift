/// The sizes at which interfaces are known to change, as far as a level goes: pages of lists, parameters of a statement, keys of
/// a request, entries of a batch, bytes of a value, of a column, of a message.
///
/// Around each of them come the size before and the size after, where what is off by one shows.
struct SizeLadder: Sendable {
  /// How many entries are in a place, or in a request, or in a batch; ascending.
  let counts: [Int]
  /// How many keys are in a request for keys that repeat themselves; ascending, and beyond the counts.
  let requests: [Int]
  /// How many bytes a value has, or a batch as a whole; ascending.
  let bytes: [Int]

  init(_ level: ConformanceBudget.Level) {
    let fewest = Self.around(1, 25, 50, 64, 100, 128, 256, 500, 512, 1_000, 1_024)
    let smallest = Self.around(1 << 7, 1 << 14, 1 << 15, 1 << 16, 1 << 20)
    switch level {
    case .quick: (counts, requests, bytes) = (fewest + [4_097], [10_001], smallest)
    case .standard:
      counts = fewest + Self.around(4_096, 10_000)
      requests = Self.around(32_767, 65_536)
      bytes = smallest + Self.around(4 << 20, 10 << 20, 16 << 20)
    case .exhaustive:
      counts =
        fewest + Self.around(2_000, 2_100, 4_096, 5_000, 10_000, 20_000, 32_767, 65_536, 100_000, 250_000)
      requests = [1_000_001]
      bytes =
        Array(smallest.dropLast(3))
        + Self.around(
          400 << 10, 1_000_000, 1 << 20, 4 << 20, 10 << 20, 16 << 20, 64 << 20, 100 << 20, 1 << 27, 256 << 20)
    }
  }

  private init(counts: [Int], requests: [Int], bytes: [Int]) {
    (self.counts, self.requests, self.bytes) = (counts, requests, bytes)
  }

  /// Those of the counts that are just beyond the others: where a limit shows that is not off by one.
  var ends: [Int] { counts.filter { !counts.contains($0 + 1) } }

  /// The counts of batches of different entries: what each of them writes is read one by one.
  var batches: [Int] { counts.filter { $0 < 1_100 } + ends.filter { $0 >= 1_100 } }

  /// The ladder up to where the counts add up to so many entries, and up to 100 in any case.
  func affordable(_ entries: Int) -> SizeLadder {
    var sum = 0
    let counts = counts.filter {
      sum += $0
      return $0 <= 101 || sum <= entries
    }
    return SizeLadder(counts: counts, requests: requests.filter { $0 <= entries / 4 }, bytes: bytes)
  }

  private static func around(_ sizes: Int...) -> [Int] {
    Set(sizes.flatMap { [$0 - 1, $0, $0 + 1] }).filter { $0 > 0 }.sorted()
  }
}

extension CheckContext {
  /// The ladder of the level, as far as the engine climbs it within seconds: one that makes a call to a remote place of each key
  /// of a request is asked for fewer.
  func ladder(for engine: EngineUnderTest) async throws -> SizeLadder {
    let ladder = SizeLadder(budget.level)
    if budget.level == .exhaustive { return ladder }
    let request = (0..<20).map { key("absent \($0)") }
    var best = Duration.seconds(1_000)
    for _ in 0..<5 {
      best = min(best, try await ContinuousClock().measure { _ = try await engine.keysExist(request) })
    }
    let timeForEntry = best.inSeconds / Double(request.count)
    return ladder.affordable(Int(4 / max(timeForEntry, 1e-6)))
  }
}
