#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

// The core workloads of the Yahoo! Cloud Serving Benchmark (Cooper et al., SoCC 2010).

extension Workload {
  static let ycsb: [Workload] = [
    ycsb("a", "half reads, half updates, zipfian", .init(read: 50, update: 50)),
    ycsb("b", "95% reads, 5% updates, zipfian", .init(read: 95, update: 5)),
    ycsb("c", "reads only, zipfian", .init(read: 100)),
    ycsb("d", "95% reads of the latest, 5% inserts", .init(read: 95, insert: 5, readsLatest: true)),
    ycsb("e", "95% scans of 1 to 100 records, 5% inserts", .init(insert: 5, scan: 95)),
    ycsb("f", "half reads, half read-modify-writes, zipfian", .init(read: 50, modify: 50)),
  ]

  private static func ycsb(_ letter: String, _ mix: String, _ shares: YCSB.Shares) -> Workload {
    Workload(
      "ycsb-\(letter)", "YCSB \(letter.uppercased()): \(mix); a fifth as many operations as records of 1 KB.",
      startsFrom: .nothing, leaves: .somethingElse, valueSize: YCSB.recordSize
    ) { run in
      var client = YCSB(shares, count: run.records.count, seed: run.seed)
      try await run.engine.write(client.initialRecords)
      let steps = client.steps(max(1, run.records.count / 5))
      var expectation = client.expectation
      try await run.measure(operations: steps.count) { latencies in
        let engine = run.engine
        var answers: [[Data]] = []
        for slice in steps.chunks(of: valuesInMemory / shares.valuesPerStep) {
          answers.removeAll(keepingCapacity: true)
          for step in slice {
            answers.append(try await step.perform(engine))
            latencies.record()
          }
          // The scans together return ten times as many values as there are records.
          try await latencies.exclude { try expectation.verify(answers, of: slice) }
        }
      }
    }
  }

  /// The approximate number of values that are kept until they are compared.
  private static let valuesInMemory = 50_000
}

/// The client of the benchmark: its operations and their expected results.
struct YCSB: Sendable {
  /// The percentages of the kinds of operations.
  struct Shares: Sendable {
    var read = 0
    var update = 0
    var insert = 0
    var scan = 0
    var modify = 0
    var readsLatest = false

    /// The maximum number of values that a step returns.
    fileprivate var valuesPerStep: Int { scan > 0 ? YCSB.longestScan : 1 }
  }

  /// One operation.
  enum Step: Sendable {
    case read(CacheKey)
    case write(CacheKey, Data)
    case scan(KeyRange, limit: Int)
    case modify(CacheKey, Data)

    /// Returns the values read.
    func perform(_ engine: any StorageEngine) async throws -> [Data] {
      switch self {
      case .read(let key): return try await engine.read(key: key).map { [$0] } ?? []
      case .write(let key, let data):
        try await engine.write(data, key: key)
        return []
      case .scan(let range, let limit): return try await engine.scan(range, limit: limit).map(\.data)
      case .modify(let key, let data):
        let value = try await engine.read(key: key)
        try await engine.write(data, key: key)
        return value.map { [$0] } ?? []
      }
    }
  }

  private let shares: Shares
  private var random: SeededRandom
  private var zipfian: Zipfian
  /// The records before the first step.
  let initialRecords: [(key: CacheKey, data: Data)]

  init(_ shares: Shares, count: Int, seed: UInt64) {
    self.shares = shares
    var random = SeededRandom(seed: seed &+ 0x79_6373_62)
    initialRecords = (0..<count).map { (Self.key($0), Self.record(&random)) }
    self.random = random
    zipfian = Zipfian(count: count)
  }

  /// The next operations.
  mutating func steps(_ count: Int) -> [Step] { (0..<count).map { _ in step() } }

  private mutating func step() -> Step {
    var draw = random.next(upTo: 100)
    func isDrawn(_ share: Int) -> Bool {
      draw -= share
      return draw < 0
    }
    if isDrawn(shares.read) { return .read(choose()) }
    if isDrawn(shares.update) { return .write(choose(), Self.record(&random)) }
    if isDrawn(shares.insert) {
      let key = Self.key(zipfian.count)
      zipfian.grow()
      return .write(key, Self.record(&random))
    }
    if isDrawn(shares.scan) {
      // The start of a range is exclusive, so it is the chosen key without its last digit.
      let start = CacheKey(verbatim: String(choose().value.dropLast()))
      return .scan(KeyRange(after: start, upTo: nil), limit: 1 + random.next(upTo: Self.longestScan))
    }
    return .modify(choose(), Self.record(&random))
  }

  private mutating func choose() -> CacheKey {
    let number =
      shares.readsLatest ? zipfian.count - 1 - zipfian.next(&random) : zipfian.nextScattered(&random)
    return Self.key(number)
  }

  /// The results of a correct engine.
  var expectation: Expectation {
    Expectation(
      values: Dictionary(uniqueKeysWithValues: initialRecords.map { ($0.key, $0.data) }),
      sortedKeys: shares.scan > 0 ? initialRecords.map(\.key).sorted() : nil)
  }

  /// Numbers are hashed, so that consecutive ones are not adjacent in key order.
  private static func key(_ number: Int) -> CacheKey {
    CacheKey(verbatim: "user\(Zipfian.hash(UInt64(number)))")
  }

  /// As many bytes as the ten fields of a record of the original benchmark.
  static let recordSize = 1_000
  /// The maximum number of records of a scan.
  private static let longestScan = 100

  private static func record(_ random: inout SeededRandom) -> Data {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(recordSize)
    while bytes.count < recordSize {
      // Printable characters, as in the fields of the original benchmark.
      withUnsafeBytes(of: random.next() & 0x3f3f_3f3f_3f3f_3f3f &+ 0x2020_2020_2020_2020) { bytes += $0 }
    }
    return Data(bytes)
  }
}

extension YCSB {
  /// The expected records after the steps that have been verified.
  struct Expectation {
    fileprivate var values: [CacheKey: Data]
    /// Nil if nothing is scanned.
    fileprivate var sortedKeys: [CacheKey]?

    /// Throws unless these are the results of the next steps.
    mutating func verify(_ answers: [[Data]], of steps: some Collection<Step>) throws {
      for (answer, step) in zip(answers, steps) {
        switch step {
        case .read(let key): try Self.compare(answer, [values[key]].compactMap { $0 }, step)
        case .modify(let key, let data):
          try Self.compare(answer, [values[key]].compactMap { $0 }, step)
          values[key] = data
        case .write(let key, let data):
          if let place = sortedKeys?.partitioningIndex(where: { $0 > key }) {
            sortedKeys?.insert(key, at: place)
          }
          values[key] = data
        case .scan(let range, let limit):
          let keys = sortedKeys ?? []
          let first = keys.partitioningIndex { key in range.after.map { key > $0 } ?? true }
          try Self.compare(answer, keys[first...].prefix(limit).compactMap { values[$0] }, step)
        }
      }
    }

    private static func compare(_ answer: [Data], _ expected: [Data], _ step: Step) throws {
      guard answer == expected else {
        throw WrongAnswer("\(step.name) returned other values than were written")
      }
    }
  }
}

extension YCSB.Step {
  fileprivate var name: String {
    switch self {
    case .read(let key): "read(key:) of \(key)"
    case .write(let key, _): "write(_:key:) of \(key)"
    case .scan(let range, let limit):
      "scan(_:limit:) after \(range.after?.description ?? "nothing"), limit \(limit),"
    case .modify(let key, _): "read(key:) of \(key)"
    }
  }
}
