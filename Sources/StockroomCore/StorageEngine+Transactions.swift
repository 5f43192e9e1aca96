#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// Operations that are built on transactions, for every engine with the capability `transactions`.
extension StorageEngine {
  /// Writes the value if the current value of the key is the expected one (compare-and-swap).
  ///
  /// One transaction that reads and writes one key.
  ///
  /// - Parameters:
  ///   - data: The new value.
  ///   - key: The key.
  ///   - expected: The value that must be stored, byte for byte; nil if the key must be absent.
  /// - Returns: Whether the new value was written. If not, nothing has changed.
  /// - Throws: as ``withTransaction(_:)`` and ``write(_:key:)``.
  public func write(_ data: Data, key: CacheKey, ifValue expected: Data?) async throws -> Bool {
    try key.validate()
    return try await withTransaction { transaction in
      guard try transaction.read(key: key) == expected else { return false }
      try transaction.write(data, key: key)
      return true
    }
  }

  /// Writes the value if the key is absent. One transaction that checks for one key and writes it.
  ///
  /// - Returns: Whether the value was written. If not, nothing has changed.
  /// - Throws: as ``withTransaction(_:)`` and ``write(_:key:)``.
  public func writeIfAbsent(_ data: Data, key: CacheKey) async throws -> Bool {
    try key.validate()
    return try await withTransaction { transaction in
      if try transaction.keyExists(key) { return false }
      try transaction.write(data, key: key)
      return true
    }
  }

  /// Adds to the number stored under a key and returns the sum. An absent key counts as 0.
  ///
  /// The number is stored as decimal digits, with a minus sign in front if it is negative. One transaction that reads and
  /// writes one key.
  ///
  /// - Throws: ``StorageError`` with code `unsupported`, with nothing changed, if the value is not such a number or the sum
  ///   does not fit into an `Int64`; otherwise as ``withTransaction(_:)`` and ``write(_:key:)``.
  @discardableResult
  public func increment(_ key: CacheKey, by amount: Int64 = 1) async throws -> Int64 {
    try key.validate()
    return try await withTransaction { transaction in
      var number: Int64 = 0
      if let data = try transaction.read(key: key) {
        guard let stored = Int64(String(decoding: data, as: UTF8.self)) else {
          throw StorageError(
            .unsupported, "The value of \(key) is not a whole number, so it cannot be incremented.")
        }
        number = stored
      }
      let (sum, isTooLarge) = number.addingReportingOverflow(amount)
      if isTooLarge {
        throw StorageError(.unsupported, "The sum of \(number) under \(key) and \(amount) is out of range.")
      }
      try transaction.write(Data(String(sum).utf8), key: key)
      return sum
    }
  }
}
