// The Swift code of Transactions.md, which ReadmeTests compares with the page.

import Foundation
import Stockroom

func move(_ amount: Int, from one: CacheKey, to other: CacheKey, in accounts: some StorageEngine) async throws
{
  try await accounts.withTransaction { transaction in
    func balance(of key: CacheKey) throws -> Int {
      try transaction.read(key: key).flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
    }
    let (first, second) = (try balance(of: one), try balance(of: other))
    guard first >= amount else { throw NotEnough() }
    try transaction.write(Data("\(first - amount)".utf8), key: one)
    try transaction.write(Data("\(second + amount)".utf8), key: other)
  }
}

func complete(_ errand: Errand, in errands: Store<Errand>) async throws {
  try await errands.update(errand) { $0.isDone = true }
}
