#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Transactions that read the same keys and write different ones: rule T1.

func checkWriteSkew(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let others = try await writeKeysToRead(context, engine)
  for reads in readsOfNumbers(beside: others, noting: context.progress) + readsOfNumbers {
    context.noteProgress()
    try await goOffCall(engine, by: reads, BodyBarrier(of: 4))
  }
  for round in context.rounds(quick: 30, standard: 150, exhaustive: 5_000, of: "rounds of two keys") {
    context.noteProgress()
    try await goOffCall(engine, by: readsOfNumbers[round % readsOfNumbers.count], nil)
  }
}

/// Has four transactions each set one of two numbers to 0, but only if both are 1.
private func goOffCall(
  _ engine: EngineUnderTest, by reads: ReadsOfNumbers, _ barrier: BodyBarrier?
) async throws {
  let onCall = [key("on call/one"), key("on call/two")]
  try await engine.write(onCall.map { ($0, data("1")) })
  let numbers = reads.numbers
  try await gather(0..<4) { task in
    try await engine.withTransaction { transaction in
      let sum = try numbers(transaction, onCall).reduce(0, +)
      barrier?.arrive()
      if sum > 1 { try transaction.write(data("0"), key: onCall[task % 2]) }
    }
  }
  let values = try await engine.read(keys: onCall).map { String(decoding: $0, as: UTF8.self) }
  try expect(
    values.contains("1"),
    "two keys had \(describe(values)), though each transaction left one of them at 1 that it had read by "
      + reads.name)
}

/// How a body reads the numbers of two keys.
private typealias ReadsOfNumbers = (
  name: String, numbers: @Sendable (any StorageTransaction, [CacheKey]) throws -> [Int]
)

/// Bodies that also read other keys, in one request or one by one, before or after the two: an engine may validate only
/// some of what a body has read.
private func readsOfNumbers(
  beside others: [CacheKey], noting progress: CheckProgress
) -> [ReadsOfNumbers] {
  @Sendable func singly(_ transaction: any StorageTransaction, _ keys: [CacheKey]) throws -> [Data] {
    try keys.compactMap { key in
      progress.note()
      return try transaction.read(key: key)
    }
  }
  @Sendable func many(_ transaction: any StorageTransaction, _ keys: [CacheKey]) throws -> [Data] {
    try transaction.read(keys: keys)
  }
  return [("read(key:)", singly), ("read(keys:)", many)].flatMap { name, read in
    let reads: [ReadsOfNumbers] = [
      (
        "\(name) before \(others.count) others",
        { try read($0, $1 + others).prefix($1.count).map { try number(of: $0, key("on call")) } }
      ),
      (
        "\(name) after \(others.count) others",
        { try read($0, others + $1).suffix($1.count).map { try number(of: $0, key("on call")) } }
      ),
    ]
    return reads
  }
}

/// Methods that read the two numbers and no other keys.
private let readsOfNumbers: [ReadsOfNumbers] = [
  ("read(key:)", { transaction, keys in try keys.map { try transaction.number($0) } }),
  (
    "read(keys:)",
    { transaction, keys in try transaction.read(keys: keys).map { try number(of: $0, keys[0]) } }
  ),
  (
    "scan(_:limit:)",
    { transaction, keys in
      try transaction.scan(.prefix("on call/"), limit: nil).map { try number(of: $0.data, $0.key) }
    }
  ),
]

/// Entries that a body reads one after the other: more than an engine might track individually, or as many as it reads
/// within half a second.
private func writeKeysToRead(_ context: CheckContext, _ engine: EngineUnderTest) async throws -> [CacheKey] {
  let sample = keys(10, prefix: "other/")
  try await engine.write(entries(sample))
  let time = try await ContinuousClock().measure {
    for key in sample { _ = try await engine.read(key: key) }
  }
  let wanted = context.byLevel(quick: 600, standard: 3_000, exhaustive: 20_000)
  let affordable = Int(0.5 / max(time.inSeconds / Double(sample.count), 1e-6))
  let count = min(wanted, max(sample.count, affordable))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) reads of a body") }
  let others = keys(count, prefix: "other/")
  try await engine.write(entries(others))
  return others
}
