#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// What a transaction of a history does: it reads, changes, and reads back what it has changed.
struct HistoryBody: Sendable {
  let entries: HistoryEntries
  /// The keys that are read one by one.
  let asked: [Int]
  let operations: [HistoryCall.Change]
  /// Whether one scan reads all keys.
  let scans: Bool
  /// Whether the body throws when all is done.
  let throwsAtEnd: Bool

  /// Every key that is read.
  var keys: [Int] { scans ? Array(entries.keys.indices) : asked }

  /// The body. Returns what it has read before it changed anything.
  ///
  /// - Throws: ``RolledBack``, and what the transaction throws.
  func run(_ transaction: any StorageTransaction) throws -> HistoryCall.Answer {
    var answer: HistoryCall.Answer
    if scans {
      answer = entries.answer(try transaction.scan(.all, limit: nil), of: keys)
    } else {
      let found = try asked.compactMap { number in
        let key = entries.keys[number]
        return try transaction.read(key: key).map { (key: key, data: $0) }
      }
      answer = entries.answer(found, of: asked)
    }
    for operation in operations { try perform(operation, transaction) }
    if !(try seesOwnChanges(transaction)) { answer = .nonsense }
    guard throwsAtEnd else { return answer }
    if case .found(let values) = answer { throw RolledBack(read: .rolledBack(values)) }
    throw RolledBack(read: answer)
  }

  private func perform(_ operation: HistoryCall.Change, _ transaction: any StorageTransaction) throws {
    switch operation {
    case .write(let key, let value):
      try transaction.write(entries.data(of: Cell(key: key, value: value)), key: entries.keys[key])
    case .remove(let key): try transaction.remove(key: entries.keys[key])
    case .removeAll: try transaction.removeAll()
    }
  }

  private func seesOwnChanges(_ transaction: any StorageTransaction) throws -> Bool {
    try operations.allSatisfy { operation in
      switch operation {
      case .write(let key, let value):
        try transaction.read(key: entries.keys[key]) == entries.data(of: Cell(key: key, value: value))
      case .remove(let key): try !transaction.keyExists(entries.keys[key])
      case .removeAll: try transaction.keyCount() == 0
      }
    }
  }
}
