import StockroomCore

extension SQLiteStorageEngine {
  /// Reads everything, and throws if any part of it is corrupted (rule F2). SQLite keeps no checksums, so a
  /// change within a value is not detected.
  ///
  /// O(N log N), on a separate thread and connection. Keeps 16 bytes per entry in memory. Changes nothing.
  ///
  /// - Throws: `StorageError` with code `corrupted` that names the corrupted part; otherwise as
  ///   ``read(key:)``.
  public func verify() async throws {
    try await database.readApart { try $0.verify() }
  }
}

extension SQLiteConnection {
  /// Checks every page, then every row.
  fileprivate func verify() throws {
    // While this statement is in progress, all others see the same state, and an interruption stays in
    // effect.
    try run(.metadata) { metadata in
      guard try metadata.step() else { throw corrupted("it has lost its metadata") }
      let lastSequence = metadata.number(at: 0)
      try checkInterruption()
      // https://sqlite.org/pragma.html#pragma_integrity_check
      let result = try execute("PRAGMA integrity_check(1)")
      guard result == "ok" else { throw corrupted(result ?? "SQLite does not say how") }
      try verifyLargeValues(referredToBy: verifyEntries(upTo: lastSequence))
      guard try !metadata.step() else { throw corrupted("it has two rows of metadata") }
    }
  }

  /// Returns the numbers of the large values that the entries refer to, in ascending order.
  private func verifyEntries(upTo lastSequence: Int64) throws -> [Int64] {
    let statement = try statement(for: .verifiedEntries)
    defer { statement.reset() }
    var sequences: [Int64] = []
    var references: [Int64] = []
    while try statement.step() {
      let key = try statement.key(at: 0)
      let name = key.value.debugDescription
      guard (try? key.validate()) != nil else { throw corrupted("\(name) is not a key") }
      guard statement.number(at: 1) != 0 else {
        throw corrupted("the entry \(name) has a column of another type or out of range")
      }
      let sequence = statement.number(at: 2)
      guard 0 < sequence, sequence <= lastSequence else {
        throw corrupted("the entry \(name) has the sequence \(sequence), which was never handed out")
      }
      sequences.append(sequence)
      let reference = statement.number(at: 3)
      if reference != 0 { references.append(reference) }
    }
    if let sequence = Self.sortingFindsTwice(&sequences) {
      throw corrupted("two entries have the sequence \(sequence)")
    }
    if let reference = Self.sortingFindsTwice(&references) {
      throw corrupted("two entries have the large value \(reference)")
    }
    return references
  }

  /// Verifies that each large value belongs to an entry.
  private func verifyLargeValues(referredToBy references: [Int64]) throws {
    let statement = try statement(for: .verifiedLargeValues)
    defer { statement.reset() }
    var expected = references[...]
    while try statement.step() {
      let number = statement.number(at: 0)
      if let missing = expected.first, missing < number { break }
      guard expected.popFirst() == number else {
        throw corrupted("the large value \(number) belongs to no entry")
      }
    }
    if let missing = expected.first { throw corrupted("the large value \(missing) is missing") }
  }

  private static func sortingFindsTwice(_ numbers: inout [Int64]) -> Int64? {
    numbers.sort()
    return zip(numbers, numbers.dropFirst()).first { $0 == $1 }?.0
  }

  private func corrupted(_ what: String) -> StorageError {
    StorageError(.corrupted, "The database \(path) is corrupted: \(what).")
  }
}
