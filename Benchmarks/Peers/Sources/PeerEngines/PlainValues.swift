import Foundation
import StockroomCore

/// An engine without timestamps, whose calls normally block the calling thread: as little as a program does that does
/// not need the rest of the contract.
protocol PlainValues: StorageEngine {}

extension PlainValues {
  /// Reads the value to find out.
  public func keyExists(_ key: CacheKey) async throws -> Bool { try await read(key: key) != nil }

  /// Throws `unsupported`.
  public func createdAt(key: CacheKey) async throws -> Date? { throw StorageError.noTimestamps }

  /// Throws `unsupported`.
  public func updatedAt(key: CacheKey) async throws -> Date? { throw StorageError.noTimestamps }

  /// Throws `unsupported`.
  public func readAllEntries() async throws -> [StorageEntry] { throw StorageError.noTimestamps }
}

extension StorageError {
  fileprivate static let noTimestamps = StorageError(.unsupported, "Peers keep no timestamps.")
}
