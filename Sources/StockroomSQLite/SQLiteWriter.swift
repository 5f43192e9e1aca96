import StockroomCore

/// What a writer knows about the database as a whole, which is true as long as no other connection writes to it.
struct SQLiteMetadata: Sendable {
  /// The greatest sequence handed out.
  var lastSequence: Int64
  /// The greatest sequence that the database itself takes for handed out. Up to there nothing need be written.
  var reservedSequence: Int64
  /// Whether any value lies in the table of large ones. If none does, there is none to be removed from it.
  var hasLargeValues: Bool
  /// The `SQLiteConnection.dataVersion` of which all this is true.
  var version: UInt32

  /// How many sequences are reserved at a time, so that not every transaction has to write one more page. When another process
  /// writes, or the process ends, those left over stay a gap.
  static let reserve: Int64 = 1000
}

/// The operations of one write transaction, on the thread that writes.
struct SQLiteWriter {
  private let connection: SQLiteConnection
  private let now = Timestamp.now().nanoseconds
  /// What the database holds once the transaction has been committed.
  private var metadata: SQLiteMetadata

  /// Looks where the transaction before has left off.
  ///
  /// - Parameter known: What the last transaction of this connection has left.
  init(on connection: SQLiteConnection, knowing known: SQLiteMetadata? = nil) throws {
    self.connection = connection
    let version = try connection.dataVersion()
    if let known, known.version == version {
      metadata = known
      return
    }
    metadata = try connection.run(.metadata) { row in
      guard try row.step() else {
        throw StorageError(.corrupted, "The database \(connection.path) has lost its metadata.")
      }
      let sequence = row.number(at: 0)
      // Beyond this there would be no room to count on.
      guard 0..<Int64.max / 2 ~= sequence else {
        throw StorageError(.corrupted, "The metadata of the database \(connection.path) is out of range.")
      }
      return SQLiteMetadata(
        lastSequence: sequence, reservedSequence: sequence, hasLargeValues: row.number(at: 1) != 0,
        version: version)
    }
  }

  /// Each operation has a sequence of its own, so that those of keys which are there already leave gaps.
  ///
  /// - Returns: What holds if the transaction is committed, but for the version.
  mutating func perform(_ batch: SortedBatch) throws -> SQLiteMetadata {
    if batch.removesAll {
      try connection.run(.removeAll)
      try connection.run(.removeAllLarge)
      metadata.hasLargeValues = false
    }
    let firstSequence = metadata.lastSequence + 1
    try batch.forEachKey { key, positions in
      for position in positions {
        if case .write(let data, _) = batch.operations[position] {
          let sequence = firstSequence + Int64(position)
          let times = batch.times(at: position)
          try data.withUnsafeBytes { try write($0, key: key, sequence: sequence, times) }
          metadata.lastSequence = max(metadata.lastSequence, sequence)
        } else {
          try remove(key)
        }
      }
    }
    if metadata.lastSequence > metadata.reservedSequence {
      metadata.reservedSequence = metadata.lastSequence + SQLiteMetadata.reserve
      try connection.run(.setMetadata) { row in
        try row.bind(metadata.reservedSequence, at: 1)
        _ = try row.step()
      }
    }
    return metadata
  }

  private mutating func write(
    _ value: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, sequence: Int64, _ times: EntryTimes?
  ) throws {
    try removeLargeValue(of: key)
    let isLarge = key.count + value.count > SQLiteEncoding.largestRow
    if isLarge {
      try connection.run(.writeLarge) { statement in
        try statement.bind(sequence, at: 1)
        try statement.bind(value, at: 2)
        _ = try statement.step()
      }
      metadata.hasLargeValues = true
    }
    try connection.run(times == nil ? .write : .writeWithTimes) { statement in
      try statement.bind(key, at: 1)
      try statement.bind(sequence, at: 2)
      try statement.bind(times?.createdAt.nanoseconds ?? now, at: 3)
      if isLarge { try statement.bind(sequence, at: 4) } else { try statement.bind(value, at: 4) }
      if let times { try statement.bind(times.age, at: 5) }
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
    guard metadata.hasLargeValues else { return }
    try connection.run(.removeLarge) { statement in
      try statement.bind(key, at: 1)
      _ = try statement.step()
    }
  }
}
