#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Notes down the calls of one task, in a list that no other task has to wait for.
struct HistoryRecorder {
  let task: Int
  let clock: any HistoryClock
  private(set) var calls: [HistoryCall] = []

  init(task: Int, clock: any HistoryClock) { (self.task, self.clock) = (task, clock) }

  /// Makes a call that changes something.
  mutating func change(
    _ method: HistoryCall.Method, _ changes: [HistoryCall.Change], _ call: () async throws -> Void
  ) async {
    await record(method, changes: changes, keys: { _ in [] }, call) { _ in .done }
  }

  /// Makes a call that looks at keys.
  mutating func look<Answer>(
    _ method: HistoryCall.Method, at keys: [Int], _ call: () async throws -> Answer,
    answer: (Answer) -> HistoryCall.Answer
  ) async {
    await record(method, changes: [], keys: { _ in keys }, call, answer: answer)
  }

  /// Makes a call that looks at keys, of which the answer decides how many.
  mutating func look<Answer>(
    _ method: HistoryCall.Method, atThoseOf keys: (Answer?) -> [Int], _ call: () async throws -> Answer,
    answer: (Answer) -> HistoryCall.Answer
  ) async {
    await record(method, changes: [], keys: keys, call, answer: answer)
  }

  /// Makes a transaction, whose body gives what it has read, or throws that in ``RolledBack``.
  mutating func transact(
    reading keys: [Int], _ changes: [HistoryCall.Change], _ call: () async throws -> HistoryCall.Answer
  ) async {
    await record(.transaction, changes: changes, keys: { _ in keys }, call) { $0 }
  }

  private mutating func record<Answer>(
    _ method: HistoryCall.Method, changes: [HistoryCall.Change], keys: (Answer?) -> [Int],
    _ call: () async throws -> Answer, answer: (Answer) -> HistoryCall.Answer
  ) async {
    let begin = clock.begin()
    let result: Result<Answer, any Error>
    do { result = .success(try await call()) } catch { result = .failure(error) }
    let end = clock.end()
    let given: HistoryCall.Answer
    var answered: Answer?
    switch result {
    case .success(let value): (given, answered) = (answer(value), value)
    case .failure(let error):
      let thrown = (error as? CallFailure)?.error ?? error
      given = (thrown as? RolledBack)?.read ?? .threw(HistoryCall.Failure(error))
    }
    calls.append(
      HistoryCall(
        task: task, method: method, changes: changes, keys: keys(answered), answer: given, begin: begin,
        end: end))
  }
}

/// What the body of a transaction throws when it has been told to change its mind.
struct RolledBack: Error {
  /// What it had read.
  let read: HistoryCall.Answer
}

extension HistoryCall.Failure {
  /// What the error says about whether the call has done anything.
  init(_ error: any Error) {
    let error = (error as? CallFailure)?.error ?? error
    self =
      if error is CancelledByNobody {
        .cancelledByNobody
      } else if error is CancellationError {
        .cancelled
      } else {
        switch (error as? StorageError)?.code {
        case .invalidKey?, .conflict?: .refused
        case .outcomeUnknown?: .outcomeUnknown
        default: .unclear
        }
      }
  }
}

/// The keys and values of histories, as numbers and as the engine sees them.
struct HistoryEntries: Sendable {
  /// Values from here on are written once; smaller ones again and again.
  static let firstUnique = 4

  let keys: [CacheKey]
  private let numbers: [CacheKey: Int]

  /// - Parameter count: How many keys there are, at most 26.
  init(count: Int) {
    keys = (0..<count).map { key(String(UnicodeScalar(UInt8(97 + $0)))) }
    numbers = Dictionary(uniqueKeysWithValues: keys.enumerated().map { ($0.element, $0.offset) })
  }

  func number(of key: CacheKey) -> Int? { numbers[key] }

  /// The bytes of a value. Those of one that is written once tell its key; the others are the same for every key.
  func data(of cell: Cell) -> Data {
    let isUnique = cell.value >= Self.firstUnique
    let text = isUnique ? "\(cell.key) \(cell.value) " : "\(cell.value) "
    // Some are longer, since parts of long values are easier to mix up.
    let padding = cell.value % 11 == 0 ? 3_000 : cell.value % 5 == 0 ? 200 : 0
    return Data(text.utf8) + Data(repeating: UInt8(ascii: "."), count: padding)
  }

  /// The value that the bytes stand for, which is that of a key, if it is known; nil if nobody wrote that.
  func cell(of data: Data, key: Int? = nil) -> Cell? {
    let numbers = data.prefix { $0 != UInt8(ascii: ".") }.split(separator: UInt8(ascii: " ")).map {
      Int(String(decoding: $0, as: UTF8.self))
    }
    let cell: Cell
    switch (numbers.count, numbers.first ?? nil, numbers.last ?? nil) {
    case (2, let owner?, let value?) where value >= Self.firstUnique && (key ?? owner) == owner:
      cell = Cell(key: owner, value: value)
    case (1, _, let value?) where value > 0 && value < Self.firstUnique && key != nil:
      cell = Cell(key: key ?? 0, value: value)
    default: return nil
    }
    return self.data(of: cell) == data ? cell : nil
  }

  /// What entries say, if each is there once and was asked for.
  func answer(_ found: [(key: CacheKey, data: Data)], of asked: [Int]) -> HistoryCall.Answer {
    answer(found, of: asked) { entry in number(of: entry.key).flatMap { cell(of: entry.data, key: $0) } }
  }

  /// What values say, which tell their keys.
  func answer(_ values: [Data], of asked: [Int]) -> HistoryCall.Answer {
    answer(values, of: asked) { cell(of: $0) }
  }

  /// What a list of keys says.
  func answer(keys found: [CacheKey], of asked: [Int]) -> HistoryCall.Answer {
    // There may be millions.
    guard found.count <= asked.count else { return .nonsense }
    let numbers = found.compactMap(number)
    let isSound = numbers.count == found.count && Set(numbers).count == found.count
    return isSound && Set(numbers).isSubset(of: asked) ? .exist(Set(numbers)) : .nonsense
  }

  private func answer<Element>(
    _ found: [Element], of asked: [Int], cell: (Element) -> Cell?
  ) -> HistoryCall.Answer {
    var values: [Int: Int] = [:]
    for element in found {
      guard let cell = cell(element), asked.contains(cell.key),
        values.updateValue(cell.value, forKey: cell.key) == nil
      else { return .nonsense }
    }
    return .found(values)
  }
}
