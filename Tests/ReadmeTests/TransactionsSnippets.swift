// The Swift code of Transactions.md, which ReadmeTests compares with the page.

import Foundation
import Stockroom

func move(_ amount: Int, from one: CacheKey, to other: CacheKey, in accounts: some StorageEngine) async throws
{
  guard amount >= 0, one != other else { throw TransferError.invalid }
  try await accounts.withTransaction { transaction in
    func balance(of key: CacheKey) throws -> Int {
      guard let data = try transaction.read(key: key) else { return 0 }
      if let balance = Int(String(decoding: data, as: UTF8.self)) { return balance }
      throw TransferError.noBalance(key)
    }
    let (first, second) = (try balance(of: one), try balance(of: other))
    guard first >= amount else { throw TransferError.notEnough }
    try transaction.write(Data("\(first - amount)".utf8), key: one)
    try transaction.write(Data("\(second + amount)".utf8), key: other)
  }
}

func complete(_ errand: Errand, in errands: Store<Errand>) async throws {
  try await errands.update(errand) { $0.isDone = true }
}
