import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines that limit the number or size of imported entries, and engines whose transactions have a maximum size.

extension SizeFault {
  static let ofEntries: [SizeFault] = [
    .init(
      .w1, "sizes.batches", "writes 999 entries of others", shows: "no failure with 999; with 1000"
    ) {
      AlteredEngine(base: $0, imported: { Array($0.prefix(999)) })
    },
    .init(.r6, "sizes.all-entries", "writes more than 20 entries of others in the order of their keys") {
      AlteredEngine(base: $0, imported: { $0.count > 20 ? $0.sorted { $0.key < $1.key } : $0 })
    },
    .init(.w4, "sizes.rejected-batches", "validates entries of others in parts of 100") {
      WritesEntriesInParts(base: $0, size: 100, validatesParts: true)
    },
    .init(.c4, "sizes.cancelled-batches", "stops between two parts of 100 entries of others") {
      WritesEntriesInParts(base: $0, size: 100)
    },
    .init(
      .v2, "sizes.bytes-of-a-value", "writes 65,535 bytes of an entry of others", shows: "with 65536 bytes"
    ) {
      AlteredEngine(
        base: $0,
        imported: { entries in
          entries.map { entry in
            var entry = entry
            entry.data = Data(entry.data.prefix(65_535))
            return entry
          }
        })
    },
    .init(
      .w1, "sizes.bytes-of-a-batch", "writes the first mebibyte of entries of others",
      shows: "with 1048577 bytes"
    ) {
      AlteredEngine(
        base: $0,
        imported: { entries in
          var sum = 0
          return Array(
            entries.prefix {
              sum += $0.data.count
              return sum <= 1 << 20
            })
        })
    },
  ]

  static let ofTransactions: [SizeFault] = [
    .init(
      .r2, "sizes.requests", "a body cannot ask for more than 8,192 keys",
      shows: "no failure with 8192; with 8193", claiming: .transactions
    ) { AltersTransactions(base: $0) { AsksForFewKeysInBodies($0, count: 8_192) } },
    .init(
      .w1, "sizes.bytes-of-a-batch", "commits the first mebibyte of a transaction",
      shows: "with 1048577 bytes", claiming: .transactions
    ) { CommitsTheFirstBytes(base: $0, count: 1 << 20) },
    .init(
      .t1, "sizes.transactions", "refuses transactions of more than a hundred writes",
      shows: "no failure with 100; with 101", claiming: .transactions
    ) {
      AltersTransactions(base: $0) { HasRoomForWrites($0, count: 100) }
    },
    .init(
      .t2, "sizes.transactions", "scans pages of 250 in a transaction, of which the second knows no bound",
      claiming: .transactions
    ) { AltersTransactions(base: $0) { ScansPagesInBodies($0, size: 250) } },
    .init(
      .t2, "sizes.transactions", "lists 1,000 keys in a transaction",
      shows: "no failure with 1000; with 1001", claiming: .transactions
    ) {
      AltersTransactions(base: $0) { ListsKeys($0, count: 1_000) }
    },
    .init(
      .t2, "sizes.bytes-of-a-value", "writes 65,535 bytes of a value in a transaction",
      shows: "with 65536 bytes", claiming: .transactions
    ) {
      AltersTransactions(base: $0) { CutsValues($0) }
    },
  ]
}

/// Simulates a service that limits the number of changes of a transaction.
final class HasRoomForWrites: ForwardingTransaction {
  private var rest: Int
  init(_ base: any StorageTransaction, count: Int) {
    rest = count
    super.init(base)
  }
  override func write(_ data: Data, key: CacheKey) throws {
    if rest == 0 { throw StorageError(.unsupported, "A transaction has room for no more changes.") }
    rest -= 1
    try base.write(data, key: key)
  }
}

/// Requests one page of keys only.
final class ListsKeys: ForwardingTransaction {
  private let count: Int
  init(_ base: any StorageTransaction, count: Int) {
    self.count = count
    super.init(base)
  }
  override func allKeys() throws -> [CacheKey] { try Array(base.allKeys().prefix(count)) }
}

/// Truncates values whose length does not fit into 16 bits.
final class CutsValues: ForwardingTransaction {
  override func write(_ data: Data, key: CacheKey) throws {
    try base.write(Data(data.prefix(65_535)), key: key)
  }
}
