import Foundation
import StockroomCore

/// A step of a series on a store. The first seventeen steps include every kind of call.
enum SystemFaultStep: Sendable, CustomStringConvertible {
  enum Look: String, Sendable {
    case single = "read(key:)"
    case keys = "readDataAndKeys(keys:)"
    case entries = "readAllEntries()"
    case someEntries = "readEntries(keys:)"
    case scan = "scan(_:limit:)"
    case listing = "allKeys()"
  }

  case change(ChangeMethod, [StorageOperation])
  case look(Look)
  case reopen

  /// A clause after "during".
  var description: String {
    switch self {
    case .change(let method, _): method.call
    case .look(let look): look.rawValue
    case .reopen: "closing and opening it again"
    }
  }

  /// - Parameter hasTransactions: Whether the steps may include a transaction.
  init(_ number: Int, hasTransactions: Bool) {
    let round = number / 17
    func new(_ name: String, _ size: Int) -> StorageOperation {
      let isLong = ["first", "applied"].contains(name)
      return .write(
        noise(size, seed: UInt64(1_000 + number)),
        key: isLong ? longKey("\(name)-\(round)") : key("\(name)-\(round)"))
    }
    func many(_ count: Int) -> [StorageOperation] {
      keys(count, prefix: "many-\(round % 3)-").enumerated().map {
        .write(noise(200 + 90 * $0.offset, seed: UInt64(number * 100 + $0.offset)), key: $0.element)
      }
    }
    switch number % 17 {
    case 0: self = .change(.write, [new("first", 300)])
    case 1: self = .change(.writeMany, many(5))
    case 2: self = .look(.single)
    case 3: self = .change(.write, [new("first", 700)])
    case 4: self = .look(.someEntries)
    case 5:
      self = .change(
        .apply,
        [new("applied", 150), .remove(key: longKey("first-\(round - 1)")), new("beside", 90)]
          + many(3).suffix(1))
    case 6:
      let writes = (0..<5).map { new("within-\($0)", 60 + 20 * $0) }
      self = .change(
        hasTransactions ? .transaction : .apply,
        [new("first", 450), .remove(key: key("beside-\(round)"))] + writes)
    case 7: self = .look(.keys)
    case 8: self = .change(.remove, [.remove(key: longKey("applied-\(round)"))])
    case 9: self = .change(.write, [new("large", 40_000)])
    case 10: self = .look(.scan)
    case 11: self = .reopen
    case 12: self = .look(.entries)
    case 13: self = .change(.removeMany, keys(3, prefix: "many-\(round % 3)-").map { .remove(key: $0) })
    case 14: self = .look(.listing)
    case 15:
      self = round % 3 == 0 ? .change(.removeAll, [.removeAll]) : .change(.write, [new("instead", 2_000)])
    default: self = .change(.writeEntries, [new("last", 500), new("last, too", 120)])
    }
  }
}

/// The expected contents of a store after some calls have thrown.
struct SystemFaultContents: Sendable {
  private(set) var certain: [CacheKey: Data] = [:]
  /// Changes that threw since the last acknowledged one. A store that accepted no changes after that may apply each of
  /// them completely, or not at all, when it is reopened.
  private var undecided: [[StorageOperation]] = []
  /// All changes that ever threw, for messages.
  private var refused: [[StorageOperation]] = []
  /// Other possible values of a key: a batch that is not atomic may have been done in part.
  private var otherValues: [CacheKey: [Data?]] = [:]

  /// Whether several states are possible.
  ///
  /// - Parameter isReopened: Whether the store has been opened since the last change.
  func isAmbiguous(isReopened: Bool) -> Bool { isReopened && !undecided.isEmpty || !otherValues.isEmpty }

  /// Records an acknowledged change.
  mutating func acknowledge(_ operations: [StorageOperation]) {
    for operation in operations { operation.apply(to: &certain) }
    undecided = []
    for operation in operations {
      switch operation {
      case .write(_, let key), .remove(let key): otherValues[key] = nil
      case .removeAll: otherValues = [:]
      }
    }
  }

  /// Records a change that threw.
  mutating func refuse(_ operations: [StorageOperation], isAtomic: Bool) {
    undecided.append(operations)
    refused.append(operations)
    if isAtomic { return }
    var after = certain
    for operation in operations {
      let touched =
        if case .removeAll = operation { Array(after.keys) } else { [operation.key].compactMap { $0 } }
      operation.apply(to: &after)
      for key in touched { otherValues[key, default: []].append(after[key]) }
    }
  }

  /// Records the contents that were found as the current state, or describes how they are wrong.
  ///
  /// - Parameter isReopened: Whether the store has been opened since the last change.
  mutating func mismatch(_ found: [CacheKey: Data], isReopened: Bool) -> Violation? {
    if found == certain {
      if isReopened { (undecided, otherValues) = ([], [:]) }
      return nil
    }
    if isReopened, let state = possible.first(where: { $0 == found }) {
      (certain, undecided, otherValues) = (state, [], [:])
      return nil
    }
    let wrong = Set(certain.keys).union(found.keys).sorted().filter { found[$0] != certain[$0] }
    if wrong.allSatisfy({ otherValues[$0]?.contains(found[$0]) ?? false }) {
      for key in wrong { certain[key] = found[key] }
      if isReopened { (undecided, otherValues) = ([], [:]) }
      return nil
    }
    return violation(found, wrong, isReopened)
  }

  /// The possible contents of a store that has accepted no change since the first one that threw. Only the first six
  /// changes that threw are considered.
  private var possible: [[CacheKey: Data]] {
    undecided.prefix(6).reduce(into: [certain]) { states, operations in
      states += states.map { state in
        var after = state
        for operation in operations { operation.apply(to: &after) }
        return after
      }
    }
  }

  private func violation(_ found: [CacheKey: Data], _ wrong: [CacheKey], _ isReopened: Bool) -> Violation {
    let key = wrong[0]
    let what = "\(key) had \(describe(found[key] as Any)) instead of \(describe(certain[key] as Any))"
    for operations in undecided {
      var after = certain
      for operation in operations { operation.apply(to: &after) }
      if found == after { return Violation("\(what): a change that had thrown was there", rule: .f4) }
      if wrong.allSatisfy({ found[$0] == after[$0] }) {
        return Violation("\(what): a part of a batch that had thrown was there", rule: .w4)
      }
    }
    let isLate = refused.joined().contains {
      if case .write(let data, key) = $0 { data == found[key] } else { false }
    }
    if isLate { return Violation("\(what): a change that had thrown took effect later", rule: .f4) }
    return Violation("\(what), which had been acknowledged", rule: isReopened ? .w6 : nil)
  }
}

extension StorageOperation {
  /// The key that is written or removed; nil if everything is removed.
  var key: CacheKey? {
    switch self {
    case .write(_, let key), .remove(let key): key
    case .removeAll: nil
    }
  }
}
