import StockroomCore

/// The state of the database that a writer knows, which is valid as long as no other connection writes to it.
struct SQLiteMetadata: Sendable {
  /// The greatest sequence number in use.
  var lastSequence: Int64
  /// The greatest sequence number that is reserved in the database. Numbers up to it can be used without a
  /// write.
  var reservedSequence: Int64
  /// Whether any value is in the table of large values. If none is, none needs to be removed from it.
  var hasLargeValues: Bool
  /// The `SQLiteConnection.dataVersion` to which all this applies.
  var version: UInt32

  /// The number of sequence numbers that are reserved at a time, so that not every transaction must write
  /// another page. When another process writes, or the process ends, the remaining ones become a gap.
  static let reserve: Int64 = 1000
}

/// The operations of one write transaction, on the thread that writes.
struct SQLiteWriter {
  private let connection: SQLiteConnection
  private let now = Timestamp.now().nanoseconds
  /// The state of the database once the transaction has been committed.
  private var metadata: SQLiteMetadata

  /// Continues from the state of the last transaction.
  ///
  /// - Parameter known: The state after the last transaction of this connection.
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
      // Above this limit, there would be no numbers left to continue with.
      guard 0..<Int64.max / 2 ~= sequence else {
        throw StorageError(.corrupted, "The metadata of the database \(connection.path) is out of range.")
      }
      return SQLiteMetadata(
        lastSequence: sequence, reservedSequence: sequence, hasLargeValues: row.number(at: 1) != 0,
        version: version)
    }
  }

  /// Performs the operations. Each has its own sequence number, so overwrites and removals leave gaps.
  ///
  /// - Returns: The state once the transaction has been committed, except for the version.
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
