// The Swift code of Transactions.md and SharingAPlace.md, which ReadmeTests compares with the pages.

import Foundation
import Stockroom
import StockroomCore

struct Errand: Codable, Sendable, Identifiable {
  var id: String
  var isDone = false
}

struct NotEnough: Error {}

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

func openErrands(in directory: URL) async throws -> Store<Errand> {
  try await Store<Errand>(storage: .sqlite(directory: FileManager.Directory(url: directory)))
}

func watch(_ engine: some StorageEngine) async throws {
  for await change in try await engine.changes() {
    switch change {
    case .keys(let keys): print("changed:", keys)
    case .everything: print("anything may have changed")
    }
  }
}
