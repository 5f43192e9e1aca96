#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Accounts between which transactions transfer amounts. Their total never changes.
struct Accounts: Codable, Sendable {
  let count: Int
  /// The initial balance of each account.
  let balance: Int

  var keys: [CacheKey] { ConformanceKit.keys(count, prefix: "account-") }

  /// The initial balances, as entries.
  var opening: [(key: CacheKey, data: Data)] { keys.map { ($0, data("\(balance)")) } }

  /// Two different accounts, determined by a number.
  func pair(_ number: Int) -> (from: CacheKey, to: CacheKey) {
    let from = number * 7 % count
    return (keys[from], keys[(from + 1 + number % (count - 1)) % count])
  }

  /// Transfers an amount. Balances may become negative.
  func transfer(
    _ amount: Int, from: CacheKey, to: CacheKey, in transaction: any StorageTransaction
  ) throws {
    let (left, right) = (try transaction.number(from), try transaction.number(to))
    try transaction.write(data("\(left - amount)"), key: from)
    try transaction.write(data("\(right + amount)"), key: to)
  }

  /// Fails unless the sum is right in a transaction. The number determines the kind of read.
  func check(in transaction: any StorageTransaction, _ kind: Int) throws {
    switch kind % 3 {
    case 0: try check(try keys.compactMap { try transaction.read(key: $0) }, "the reads of one body")
    case 1: try check(try transaction.read(keys: keys), "read(keys:) in a body")
    default:
      try check(try transaction.scan(.prefix("account-"), limit: nil).map(\.data), "scan(_:limit:) in a body")
    }
  }

  /// Fails unless the values of all accounts have the right sum.
  func check(_ values: [Data], _ what: String) throws {
    try expect(values.count, is: count, "the number of accounts that \(what) found")
    let sum = try values.reduce(0) { try $0 + number(of: $1, keys[0]) }
    try expect(sum, is: count * balance, "the sum of \(count) accounts, as \(what) found them,")
  }
}

/// Transfers that several processes make concurrently. Each of them is a transaction that also increments a counter.
struct TransferWork: Codable, Sendable {
  let accounts: Accounts
  /// How many transfers each process makes.
  let count: Int

  /// The counter that every transfer increments.
  static let counter = key("transfers")

  /// Makes the transfer with this number of one process.
  func perform(_ number: Int, of share: Int, on engine: EngineUnderTest) async throws {
    let (from, to) = accounts.pair(number &+ share * 3)
    try await engine.withTransaction { transaction in
      try accounts.transfer(1 + number % 5, from: from, to: to, in: transaction)
      try transaction.write(data("\(try transaction.number(Self.counter) + 1)"), key: Self.counter)
    }
  }
}
