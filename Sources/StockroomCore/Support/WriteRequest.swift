/// What one call wants to have written, as a whole or not at all.
package struct WriteRequest: Sendable {
  fileprivate enum Contents: Sendable {
    case operations([StorageOperation])
    case transaction(@Sendable (any StorageTransaction) -> Bool)
  }

  fileprivate let contents: Contents
  /// Who makes it.
  let origin = ChangeOrigin.current

  /// Operations with valid keys, in order.
  package static func operations(_ operations: [StorageOperation]) -> WriteRequest {
    WriteRequest(contents: .operations(operations))
  }

  /// The body of a transaction. It returns whether its changes are to be kept.
  package static func transaction(_ body: @escaping @Sendable (any StorageTransaction) -> Bool)
    -> WriteRequest
  {
    WriteRequest(contents: .transaction(body))
  }

  /// The operations, unless it takes a look at the entries to know them.
  package var knownOperations: [StorageOperation]? {
    if case .operations(let operations) = contents { operations } else { nil }
  }

  /// Whether it is known that there is nothing to do.
  package var isEmpty: Bool { knownOperations?.isEmpty ?? false }
}

extension Collection<WriteRequest> {
  /// The operations of each request, in order, if they are known.
  package var knownOperations: [[StorageOperation]]? {
    let known = compactMap(\.knownOperations)
    return known.count == count ? known : nil
  }

  /// Runs the transactions in order, on the thread of the caller, and returns the operations that each request comes to.
  ///
  /// Each body sees what the requests before it come to, so that they are one batch together: all of them or none.
  ///
  /// - Parameters:
  ///   - reader: What there is. Nobody else changes it meanwhile.
  ///   - valueLimit: That of the engine.
  package func operations(reading reader: some EntryReader, _ valueLimit: ValueLimit?) -> [[StorageOperation]]
  {
    if let knownOperations { return knownOperations }
    var group = TransactionOverlay(on: reader)
    return map { request in
      let operations: [StorageOperation]
      switch request.contents {
      case .operations(let known): operations = known
      case .transaction(let body):
        let transaction = OverlayTransaction(on: group, valueLimit)
        let isKept = body(transaction)
        let changes = transaction.end()
        operations = isKept ? changes : []
      }
      // Nobody reads behind the last one.
      if count > 1 { group.apply(operations) }
      return operations
    }
  }
}
