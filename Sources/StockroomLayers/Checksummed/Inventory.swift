import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A summary of the keys in a place, in the form in which they are stored there: their number, and the sum of their digests. It
/// does not depend on their order.
struct Inventory: Equatable {
  private(set) var count = 0
  /// The sums of the halves of the keys' MD5 digests, modulo 2^64.
  private var sums = (UInt64(0), UInt64(0))

  /// The key under which the inventory is stored. It is unlikely to be used for anything else.
  static let key = CacheKey(verbatim: "stockroom-inventory-0f6e9c1d5a7b4e2c8d3f60a1b9c7e5d2")

  init() {}

  init(of keys: some Sequence<CacheKey>) throws { for key in keys { try insert(key) } }

  /// - Throws: `StorageError` with code `corrupted` if the number of keys would overflow, which only a corrupted inventory causes.
  mutating func insert(_ key: CacheKey) throws {
    let digest = Self.digest(key)
    guard count < .max else { throw Self.malformed }
    count += 1
    sums = (sums.0 &+ digest.0, sums.1 &+ digest.1)
  }

  /// - Throws: `StorageError` with code `corrupted` if the number of keys is 0 already.
  mutating func remove(_ key: CacheKey) throws {
    let digest = Self.digest(key)
    guard count > 0 else { throw Self.malformed }
    count -= 1
    sums = (sums.0 &- digest.0, sums.1 &- digest.1)
  }

  private static var malformed: StorageError {
    StorageError(
      .corrupted, "The inventory of keys cannot be read, or does not match the keys that are stored.")
  }

  private static func digest(_ key: CacheKey) -> (UInt64, UInt64) {
    MD5.digest(of: key.value.utf8).bytes.withUnsafeBytes {
      (
        UInt64(littleEndian: $0.loadUnaligned(fromByteOffset: 0, as: UInt64.self)),
        UInt64(littleEndian: $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
      )
    }
  }

  static func == (left: Self, right: Self) -> Bool { left.count == right.count && left.sums == right.sums }

  // MARK: Stored form

  /// The byte "I", the number of keys and both sums as 8 bytes each, little-endian.
  var stored: Data {
    var stored = Data("I".utf8)
    for number in [UInt64(count), sums.0, sums.1] {
      withUnsafeBytes(of: number.littleEndian) { stored.append(contentsOf: $0) }
    }
    return stored
  }

  /// - Parameter stored: The stored bytes. Nil is an inventory without keys.
  /// - Throws: `StorageError` with code `corrupted` if the bytes are not an inventory.
  init(stored: Data?) throws {
    guard let stored else { return }
    let numbers: [UInt64]? = stored.withUnsafeBytes { bytes in
      guard bytes.count == 25, bytes[0] == UInt8(ascii: "I") else { return nil }
      return [1, 9, 17].map {
        UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: $0, as: UInt64.self))
      }
    }
    guard let numbers, let count = Int(exactly: numbers[0]) else {
      throw Self.malformed
    }
    (self.count, sums) = (count, (numbers[1], numbers[2]))
  }

  /// - Throws: `StorageError` with code `corrupted` if the inventory of the keys that were found differs from this one.
  func verify(_ found: Inventory) throws {
    if found == self { return }
    throw StorageError(
      .corrupted,
      "The inventory of the place has \(count) entries, but \(found.count) "
        + (found.count == count ? "with other keys were found." : "were found."))
  }
}
