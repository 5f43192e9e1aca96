import StockroomCore

/// Records the calls of one task in a list that no other task uses.
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

  /// Makes a call that reads keys.
  mutating func look<Answer>(
    _ method: HistoryCall.Method, at keys: [Int], _ call: () async throws -> Answer,
    answer: (Answer) -> HistoryCall.Answer
  ) async {
    await record(method, changes: [], keys: { _ in keys }, call, answer: answer)
  }

  /// Makes a call that reads keys. The keys that were read depend on the result.
  mutating func look<Answer>(
    _ method: HistoryCall.Method, atThoseOf keys: (Answer?) -> [Int], _ call: () async throws -> Answer,
    answer: (Answer) -> HistoryCall.Answer
  ) async {
    await record(method, changes: [], keys: keys, call, answer: answer)
  }

  /// Makes a transaction. Its body returns what it has read, or throws that in ``RolledBack``.
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

/// The error that the body of a transaction throws to roll back.
struct RolledBack: Error {
  /// The result of its reads.
  let read: HistoryCall.Answer
}

extension HistoryCall.Failure {
  /// The meaning of the error for the outcome of the call.
  init(_ error: any Error) {
    let error = (error as? CallFailure)?.error ?? error
    self =
      if error is UnexpectedCancellation {
        .unexpectedCancellation
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
