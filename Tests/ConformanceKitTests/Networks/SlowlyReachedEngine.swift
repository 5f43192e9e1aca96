import FaultyEngineWorker
import Foundation
import StockroomCore

@testable import ConformanceKit

/// Its reads throw as if the server did not answer in time, and opening another one takes most of the time limit.
struct SlowlyReachedEngine: FaultyEngine {
  let base: WireEngine

  init(_ directory: URL, port: UInt16) async throws {
    base = try await WireEngine(directory, port: port, fault: .none)
    try await Task.sleep(for: WireEngine.timeLimit * 3 / 5)
  }

  private let late = StorageError(.unavailable, "The server has not answered in time.")

  func read(key: CacheKey) async throws -> Data? { throw late }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] { throw late }
}

/// Detects the first cancellations only after its time limit, as if its threads did not run for a while.
struct HeldUpAtFirst: FaultyEngine {
  let base: WireEngine
  private let heldUp: WireEngine
  private let reads = AtomicCounter()

  init(_ directory: URL, port: UInt16) async throws {
    base = try await WireEngine(directory, port: port, fault: .none)
    heldUp = try await WireEngine(directory, port: port, fault: .ignoresCancellation)
  }

  func read(key: CacheKey) async throws -> Data? {
    // The number of calls that the check cancels at a time.
    try await reads.increment() <= 20 ? heldUp.read(key: key) : base.read(key: key)
  }

  func close() async throws {
    try await heldUp.close()
    try await base.close()
  }
}

/// Its place can be open only once, as with a lock that the server keeps for it.
final class HasItsPlaceAlone: FaultyEngine {
  private static let places = MutexProtected<Set<String>>([])
  let base: WireEngine
  private let place: String
  private let isOpen = MutexProtected(true)

  init(_ directory: URL, port: UInt16) async throws {
    let place = directory.path
    guard Self.places.withLock({ $0.insert(place).inserted }) else {
      throw StorageError(.locked, "\(place) is open.")
    }
    do {
      base = try await WireEngine(directory, port: port, fault: .none)
    } catch {
      Self.places.withLock { _ = $0.remove(place) }
      throw error
    }
    self.place = place
  }

  deinit { leave() }

  private func leave() {
    let wasOpen = isOpen.withLock { isOpen in
      defer { isOpen = false }
      return isOpen
    }
    if wasOpen { Self.places.withLock { _ = $0.remove(place) } }
  }

  func close() async throws {
    try await base.close()
    leave()
  }
}
