/// A call of a task, with its time and its result.
///
/// Keys and values are numbers. Key 0 is the first in byte order; value 0 stands for absent.
struct HistoryCall: Sendable, Hashable, Codable {
  /// The method that was called.
  enum Method: Sendable, Hashable, CaseIterable, Codable {
    case write, writeMany, writeEntries, remove, removeMany, removeAll, apply
    case transaction
    case read, exists, readMany, readManyWithKeys, readEntries, keysExist
    case readAll, readAllData, readAllEntries, allKeys, keyCount, scan

    /// Whether it changes nothing.
    var isRead: Bool {
      switch self {
      case .write, .writeMany, .writeEntries, .remove, .removeMany, .removeAll, .apply, .transaction: false
      default: true
      }
    }
  }

  /// A change that a call makes.
  enum Change: Sendable, Hashable, Codable {
    case write(key: Int, value: Int)
    case remove(key: Int)
    case removeAll
  }

  /// The result of the call.
  enum Answer: Sendable, Hashable, Codable {
    /// The changes are acknowledged.
    case done
    /// These keys have these values, and the other requested keys are absent. If the call is a transaction, its changes
    /// are acknowledged.
    case found([Int: Int])
    /// The result of the reads in a body that then threw, as in `found`. Its changes have not been made.
    case rolledBack([Int: Int])
    /// These keys exist, and the other requested keys are absent.
    case exist(Set<Int>)
    /// The number of keys.
    case count(Int)
    /// The result contains a value that was never written.
    case nonsense
    /// The call threw.
    case threw(Failure)

    /// Whether it is unknown if the call has taken effect or will do so later.
    var isUncertain: Bool { self == .threw(.outcomeUnknown) || self == .threw(.unclear) }
  }

  /// The reason why a call threw.
  enum Failure: Sendable, Hashable, Codable {
    /// It was refused, so it had no effect.
    case refused
    /// It was cancelled, so it had no effect, by rule C4.
    case cancelled
    /// It threw `CancellationError` although it was not cancelled.
    case unexpectedCancellation
    /// The error says that the call may have taken effect, or may do so later.
    case outcomeUnknown
    /// Any other error. The outcome is unknown as well.
    case unclear
  }

  let task: Int
  let method: Method
  /// The changes of the call, in order.
  var changes: [Change] = []
  /// The keys that the call reads: by default all of them. A transaction reads them before its changes.
  var keys: [Int] = []
  let answer: Answer
  /// The clock steps at which the call began and ended, which are unique.
  let begin: Int
  let end: Int

  /// Whether the call has certainly changed nothing, so that only its result matters.
  var isObservation: Bool {
    if case .rolledBack = answer { return true }
    return changes.isEmpty
  }

  /// Whether its result contains observations.
  var hasObservations: Bool {
    switch answer {
    case .found, .rolledBack, .exist, .count, .nonsense: true
    case .done, .threw: false
    }
  }

  /// The call without its result.
  var withoutObservations: HistoryCall {
    HistoryCall(task: task, method: method, changes: changes, answer: .done, begin: begin, end: end)
  }

  /// The call without its changes.
  var withoutChanges: HistoryCall {
    HistoryCall(task: task, method: method, keys: keys, answer: answer, begin: begin, end: end)
  }

  /// Whether the two calls overlap.
  func overlaps(_ other: HistoryCall) -> Bool { begin < other.end && other.begin < end }
}

extension HistoryCall: CustomStringConvertible {
  /// The call and its result, as in the timeline: `read("a") → 7`.
  var description: String {
    var text = "\(name)(\(arguments))"
    switch answer {
    case .done: break
    case .found where method == .transaction, .exist where method == .transaction: break
    case .found(let values):
      let isOne = method == .read
      let found = values.sorted { $0.key < $1.key }
      text +=
        isOne
        ? " → \(found.first.map { "\($0.value)" } ?? "nil")"
        : " → [\(found.map { "\(Self.name(of: $0.key)): \($0.value)" }.joined(separator: ", "))]"
    case .exist(let keys):
      let isOne = method == .exists
      text += isOne ? " → \(!keys.isEmpty)" : " → [\(keys.sorted().map(Self.name).joined(separator: ", "))]"
    case .count(let count): text += " → \(count)"
    case .rolledBack: text += " threw"
    case .nonsense: text += " → a value that was never written"
    case .threw(.cancelled), .threw(.unexpectedCancellation): text += " threw CancellationError"
    case .threw(.refused), .threw(.outcomeUnknown), .threw(.unclear): text += " threw"
    }
    return text
  }

  /// The name of a key in the timeline. The first is "a".
  static func name(of key: Int) -> String {
    key < 26 ? "\"\(Character(UnicodeScalar(UInt8(97 + key))))\"" : "\"\(key)\""
  }

  private var name: String {
    switch method {
    case .write, .writeMany: "write"
    case .writeEntries: "writeEntries"
    case .remove, .removeMany: "remove"
    case .removeAll: "removeAllData"
    case .apply: "apply"
    case .transaction: "withTransaction"
    case .read, .readMany: "read"
    case .exists: "keyExists"
    case .readManyWithKeys: "readDataAndKeys"
    case .readEntries: "readEntries"
    case .keysExist: "keysExist"
    case .readAll: "readAllDataAndKeys"
    case .readAllData: "readAllData"
    case .readAllEntries: "readAllEntries"
    case .allKeys: "allKeys"
    case .keyCount: "keyCount"
    case .scan: "scan"
    }
  }

  /// The results of the reads of a transaction's body, by key.
  private var readsOfBody: [String] {
    switch answer {
    case .found(let values), .rolledBack(let values):
      keys.map { "\(Self.name(of: $0)) → \(values[$0].map { "\($0)" } ?? "nil")" }
    case .exist(let existing):
      keys.map { "\(Self.name(of: $0)) \(existing.contains($0) ? "exists" : "is absent")" }
    default: []
    }
  }

  private var arguments: String {
    let isPlain = method == .write || method == .remove
    let isMixed = method == .apply || method == .transaction
    let changes = changes.map { change in
      switch change {
      case .write(let key, let value):
        isPlain ? "\(Self.name(of: key)), \(value)" : "\(Self.name(of: key)): \(value)"
      case .remove(let key):
        isMixed ? "remove \(Self.name(of: key))" : Self.name(of: key)
      case .removeAll: isMixed ? "remove all" : ""
      }
    }
    switch method {
    case .write, .remove, .removeAll: return changes.joined()
    case .writeMany, .writeEntries, .removeMany, .apply: return "[\(changes.joined(separator: ", "))]"
    case .transaction: return (readsOfBody + changes).joined(separator: ", ")
    case .read, .exists: return keys.map(Self.name).joined()
    case .readMany, .readManyWithKeys, .readEntries, .keysExist, .scan:
      return keys.map(Self.name).joined(separator: ", ")
    case .readAll, .readAllData, .readAllEntries, .allKeys, .keyCount: return ""
    }
  }
}
