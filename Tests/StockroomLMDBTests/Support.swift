import Foundation
import StockroomCore
import TestFixtures
import StockroomKitSupport
import StockroomLMDB

extension TemporaryDirectory {
  /// A path to move things to.
  var neighbor: URL { beside("neighbor") }
  var dataFile: URL { url.appending(path: "data.mdb") }

  func engine(
    durability: Durability = .process, lockTimeout: Duration = .seconds(60), verifiesOnOpening: Bool = false
  ) throws -> LMDBStorageEngine {
    try LMDBStorageEngine(
      directory: directory, durability: durability, lockTimeout: lockTimeout,
      verifiesOnOpening: verifiesOnOpening)
  }
}

/// The code of the error that `body` throws, or nil.
func code(of body: () async throws -> Void) async -> StorageError.Code? {
  do {
    try await body()
    return nil
  } catch {
    return (error as? StorageError)?.code
  }
}

func key(_ number: Int) -> CacheKey {
  let digits = String(number)
  return CacheKey(verbatim: "key/" + String(repeating: "0", count: max(0, 8 - digits.count)) + digits)
}

func value(_ number: Int, count: Int = 100) -> Data {
  var random = SeededRandom(seed: UInt64(bitPattern: Int64(number)))
  return random.bytes(count)
}

/// A flag that is set once.
final class Flag: Sendable {
  private let value = MutexProtected(false)

  var isSet: Bool { value.withLock { $0 } }

  func set() { value.withLock { $0 = true } }
}
