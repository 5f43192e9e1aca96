import StockroomCore

/// The operations of one write transaction, on the thread that writes.
struct SQLiteWriter {
  private let connection: SQLiteConnection
  private let now = Timestamp.now().nanoseconds
  /// The greatest sequence handed out before this transaction.
  private let lastSequence: Int64
  /// The same as the transaction leaves it.
  private var newLastSequence: Int64
  /// Whether any value lies in the table of large ones. If none does, there is none to be removed from it.
  private var hasLargeValues: Bool

  /// Looks where the transaction before has left off.
  init(on connection: SQLiteConnection) throws {
    self.connection = connection
    (lastSequence, hasLargeValues) = try connection.run(.ledger) { ledger in
      guard try ledger.step() else {
        throw StorageError(.corrupted, "The database \(connection.path) has lost its ledger.")
      }
      return (ledger.number(at: 0), ledger.number(at: 1) != 0)
    }
    // Beyond this there would be no room to count on.
    guard 0..<Int64.max / 2 ~= lastSequence else {
      throw StorageError(.corrupted, "The ledger of the database \(connection.path) makes no sense.")
    }
    newLastSequence = lastSequence
  }

  /// Each operation has a sequence of its own, so that those of keys which are there already leave gaps.
  mutating func perform(_ batch: SortedBatch) throws {
    if batch.removesAll {
      try connection.run(.removeAll)
      try connection.run(.removeAllLarge)
      hasLargeValues = false
    }
    try batch.forEachKey { key, positions in
      for position in positions {
        if case .write(let data, _) = batch.operations[position] {
          let sequence = lastSequence + 1 + Int64(position)
          try data.withUnsafeBytes { try write($0, key: key, sequence: sequence) }
          newLastSequence = max(newLastSequence, sequence)
        } else {
          try remove(key)
        }
      }
    }
    guard newLastSequence > lastSequence else { return }
    try connection.run(.setLedger) { ledger in
      try ledger.bind(newLastSequence, at: 1)
      _ = try ledger.step()
    }
  }

  private mutating func write(
    _ value: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, sequence: Int64
  ) throws {
    try removeLargeValue(of: key)
    let isLarge = key.count + value.count > SQLiteEncoding.largestRow
    if isLarge {
      try connection.run(.writeLarge) { statement in
        try statement.bind(sequence, at: 1)
        try statement.bind(value, at: 2)
        _ = try statement.step()
      }
      hasLargeValues = true
    }
    try connection.run(.write) { statement in
      try statement.bind(key, at: 1)
      try statement.bind(sequence, at: 2)
      try statement.bind(now, at: 3)
      if isLarge { try statement.bind(sequence, at: 4) } else { try statement.bind(value, at: 4) }
      _ = try statement.step()
    }
  }

  private func remove(_ key: UnsafeRawBufferPointer) throws {
    try removeLargeValue(of: key)
    try connection.run(.remove) { statement in
      try statement.bind(key, at: 1)
      _ = try statement.step()
    }
  }

  private func removeLargeValue(of key: UnsafeRawBufferPointer) throws {
    guard hasLargeValues else { return }
    try connection.run(.removeLarge) { statement in
      try statement.bind(key, at: 1)
      _ = try statement.step()
    }
  }
}
