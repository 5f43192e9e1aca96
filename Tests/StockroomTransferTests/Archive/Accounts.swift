import Foundation
import StockroomCore
import StockroomKitSupport
import Testing

/// Accounts between which tasks move money as long as a body runs: the sum is the same at all times.
struct Accounts {
  static let count = 40
  static let sum = 100 * count

  static func open(in engine: some StorageEngine) async throws {
    try await engine.write((0..<count).map { (key: account($0), data: Data("100".utf8)) })
  }

  static func account(_ number: Int) -> CacheKey { key("account \(number)") }

  /// Runs the body while tasks move money between random accounts.
  static func whileMoving(
    in engine: any StorageEngine, tasks: Int = 3, _ body: @Sendable @escaping () async throws -> Void
  ) async throws {
    try await withThrowingTaskGroup(of: Bool.self) { group in
      for task in 0..<tasks {
        group.addTask {
          var random = SeededRandom(seed: UInt64(task))
          while !Task.isCancelled {
            let (from, to) = (random.next(upTo: count), random.next(upTo: count))
            let name = "receipt \(random.next(upTo: 100))"
            do {
              try await engine.withTransaction { transaction in
                try move(7, from, to, in: transaction)
                // Keys come and go as well.
                if try transaction.keyExists(key(name)) {
                  try transaction.remove(key: key(name))
                } else {
                  try transaction.write(Data(name.utf8), key: key(name))
                }
              }
            } catch is CancellationError { break }
          }
          return false
        }
      }
      group.addTask {
        try await body()
        return true
      }
      while let isBody = try await group.next() { if isBody { group.cancelAll() } }
    }
  }

  private static func move(
    _ amount: Int, _ from: Int, _ to: Int, in transaction: any StorageTransaction
  ) throws {
    for (number, change) in [(from, -amount), (to, amount)] {
      let balance = try transaction.read(key: account(number)).flatMap {
        Int(String(decoding: $0, as: UTF8.self))
      }
      try transaction.write(Data("\((balance ?? 0) + change)".utf8), key: account(number))
    }
  }

  /// The sum of all accounts.
  static func sum(in engine: some StorageEngine) async throws -> Int {
    let entries = try await engine.scan(.prefix("account "), limit: nil)
    #expect(entries.count == count)
    return entries.compactMap { Int(String(decoding: $0.data, as: UTF8.self)) }.reduce(0, +)
  }
}
