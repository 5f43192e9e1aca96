/// The changes of one call, made as a whole or not at all.
package struct WriteRequest: Sendable {
  fileprivate enum Contents: Sendable {
    case operations([StorageOperation], [EntryTimes?])
    case transaction(@Sendable (any StorageTransaction) -> Bool, TimesOfTransaction)
  }

  fileprivate let contents: Contents
  /// The origin of the call.
  let origin = ChangeOrigin.current

  /// Operations with valid keys, in order.
  package static func operations(_ operations: [StorageOperation]) -> WriteRequest {
    WriteRequest(contents: .operations(operations, []))
  }

  /// Entries with valid keys, to be written with their times, in order.
  package static func entries(_ entries: [StorageEntry]) -> WriteRequest {
    WriteRequest(
      contents: .operations(entries.map { .write($0.data, key: $0.key) }, entries.map { EntryTimes($0) }))
  }

  /// The body of a transaction. It returns whether its changes are to be committed.
  package static func transaction(_ body: @escaping @Sendable (any StorageTransaction) -> Bool)
    -> WriteRequest
  {
    WriteRequest(contents: .transaction(body, TimesOfTransaction()))
  }

  /// The operations, unless the entries must be read to determine them.
  package var knownOperations: [StorageOperation]? {
    if case .operations(let operations, _) = contents { operations } else { nil }
  }

  /// The timestamps of the entries that the operations write, one element for each operation, nil for the
  /// time of the commit; empty if that applies to all, as it usually does. For a transaction, known once it
  /// has been run.
  package var times: [EntryTimes?] {
    switch contents {
    case .operations(_, let times): times
    case .transaction(_, let times): times.value.withLock { $0 }
    }
  }

  /// Whether it is known that there is nothing to do.
  package var isEmpty: Bool { knownOperations?.isEmpty ?? false }
}

/// The times of the entries that the body of a transaction has written.
private final class TimesOfTransaction: Sendable {
  let value = MutexProtected<[EntryTimes?]>([])
}

extension Collection<WriteRequest> {
  /// The operations of each request, in order, if they are known.
  package var knownOperations: [[StorageOperation]]? {
    let known = compactMap(\.knownOperations)
    return known.count == count ? known : nil
  }

  /// The ``WriteRequest/times`` of all requests together.
  ///
  /// - Parameter operations: The operations of each of them.
  package func times(of operations: [[StorageOperation]]) -> [EntryTimes?] {
    guard contains(where: { !$0.times.isEmpty }) else { return [] }
    return zip(self, operations).flatMap { request, operations in
      let times = request.times
      return times.isEmpty ? Array(repeating: nil, count: operations.count) : times
    }
  }

  /// Runs the transactions in order, on the caller's thread, and returns the operations of each request.
  /// Their timestamps are then those that ``times(of:)`` returns.
  ///
  /// Each body sees the changes of earlier requests, so together they are one batch: all of them are
  /// committed or none.
  ///
  /// - Parameters:
  ///   - reader: The existing entries. No other caller changes them in the meantime.
  ///   - valueLimit: The limit of the engine.
  ///   - goesOn: Whether to process the next request too. At least one is processed.
  package func operations(
    reading reader: some EntryReader, _ valueLimit: ValueLimit?, while goesOn: () -> Bool = { true }
  ) -> [[StorageOperation]] {
    if let knownOperations { return knownOperations }
    var group = TransactionOverlay(on: reader)
    var all: [[StorageOperation]] = []
    for request in self where all.isEmpty || goesOn() {
      let operations: [StorageOperation]
      switch request.contents {
      case .operations(let known, _): operations = known
      case .transaction(let body, let times):
        let transaction = OverlayTransaction(on: group, valueLimit)
        let isKept = body(transaction)
        let changes = transaction.end()
        operations = isKept ? changes.operations : []
        times.value.withLock { $0 = isKept ? changes.times : [] }
      }
      // Nothing is read after the last one.
      if count > 1 { group.apply(operations) }
      all.append(operations)
    }
    return all
  }
}
