import StockroomCore

/// The kinds of calls in a kind of sequence, and how often each occurs.
struct CommandProfile: Sendable {
  enum Call: Sendable, Hashable {
    case write, writeMany, writeEntries, remove, removeMany, removeAll, apply
    case ask(ReadMethod)
    /// A call of any method that reads.
    case askAnything
    /// Left out for engines without transactions.
    case transaction
    case reopen, drop, wait
  }

  /// The check that generates sequences of this kind.
  let check: String
  /// The share of this kind of sequence in the budget, in fifths.
  let share: Int
  /// Each call with its weight.
  let calls: KeyValuePairs<Call, Int>

  /// One entry at a time.
  static let singleCalls = CommandProfile(
    check: "model.single-calls", share: 1,
    calls: [
      .write: 300, .remove: 100, .removeAll: 10, .wait: 8, .ask(.read): 200, .ask(.keyExists): 60,
      .ask(.createdAt): 60, .ask(.updatedAt): 60, .ask(.keyCount): 60, .ask(.allKeys): 30,
      .ask(.readAllEntries): 60,
    ])

  /// Many entries at a time.
  static let batches = CommandProfile(
    check: "model.batches", share: 1,
    calls: [
      .writeMany: 120, .writeEntries: 40, .removeMany: 60, .apply: 200, .write: 40, .remove: 20,
      .removeAll: 6, .wait: 8, .ask(.read): 60, .ask(.createdAt): 30, .ask(.updatedAt): 30,
      .ask(.keyCount): 60, .ask(.allKeys): 20, .ask(.readAllEntries): 100, .ask(.readDataAndKeys): 40,
    ])

  /// Calls of all kinds.
  static let everything = CommandProfile(
    check: "model.everything", share: 2,
    calls: [
      .write: 150, .writeMany: 60, .writeEntries: 60, .remove: 60, .removeMany: 30, .removeAll: 6,
      .apply: 100, .transaction: 60, .wait: 8, .askAnything: 450, .ask(.scan): 60, .ask(.readAllEntries): 30,
    ])

  /// Transactions, and calls between them.
  static let transactions = CommandProfile(
    check: "model.transactions", share: 1,
    calls: [
      .transaction: 300, .write: 40, .remove: 20, .apply: 40, .wait: 4, .askAnything: 150,
      .ask(.readAllEntries): 80,
    ])

  /// Changes, and reopening between them.
  static let reopened = CommandProfile(
    check: "model.reopened", share: 1,
    calls: [
      .write: 120, .writeMany: 40, .writeEntries: 40, .remove: 60, .removeMany: 20, .removeAll: 6,
      .apply: 80, .transaction: 60, .wait: 4, .askAnything: 200, .ask(.readAllEntries): 80, .reopen: 12,
      .drop: 12,
    ])
}

/// The theme of a sequence, which determines its keys and values.
enum CommandTheme: Sendable, Hashable {
  /// Two or three short keys.
  case fewKeys
  /// Keys that engines are known to confuse.
  case similarKeys
  /// Forty keys.
  case manyKeys
  /// Few keys and few values, so that entries have equal values and get earlier values again.
  case fewValues
  /// Values of more than 64 KiB and of more than 1 MiB. Few calls, since each is expensive.
  case largeValues
}
