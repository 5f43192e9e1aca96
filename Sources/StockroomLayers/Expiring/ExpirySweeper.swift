import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// After a pass through a place whose keys cannot be listed, nothing is checked until half as many entries have been written: each
/// attempt may read the whole place.
private let pauseAfterUnlistedKeys = 100_000
/// The maximum number of entries that are due to be checked, unless one write alone has added more.
private let mostDue = 100_000
/// The maximum number of entries that a write checks for each that it has written: its own two, and those left by writes that came
/// while another was sweeping.
private let mostChecksPerWrite = 8

/// Removes expired entries, a page at a time. On average it checks two entries for each that is written, in the byte order of keys,
/// and begins again at the end.
///
/// One write sweeps at a time; those that come in the meantime leave their share to later ones. What one write checks is bounded by
/// what it has written, so that none sweeps for all others.
final class ExpirySweeper<Base: StorageEngine>: Sendable {
  /// How far a pass through the place has come.
  struct Pass: Sendable {
    fileprivate var cursor = EntryCursor()
    /// What is wrong with the first entry that cannot be read. Such entries stay.
    fileprivate(set) var failure: StorageError?

    /// Whether it has ended because the entries can be neither scanned nor listed.
    fileprivate var isStuck = false

    var isComplete: Bool { cursor.isAtEnd || isStuck }

    fileprivate mutating func restart() {
      cursor.restart()
      (failure, isStuck) = (nil, false)
    }
  }

  private struct State {
    var pass = Pass()
    /// The number of entries that are due to be checked.
    var due = 0
    var isSweeping = false
  }

  private let base: Base
  private let lifetimes: Lifetimes
  private let state = MutexProtected(State())

  init(base: Base, lifetimes: Lifetimes) { (self.base, self.lifetimes) = (base, lifetimes) }

  /// Checks some entries for `count` that have been written. The write has been acknowledged, so errors are not thrown here: a
  /// later write tries again, much later if the keys cannot be listed. ``step(_:)`` throws them to callers of `removeExpired()`.
  func entriesWereWritten(_ count: Int) async {
    guard count > 0, base.capabilities.contains(.transactions), var pass = begin(count) else { return }
    do {
      var left = mostChecksPerWrite * count
      while left > 0, isDue(pass.cursor.pageSize) {
        left -= pass.cursor.pageSize
        if pass.isComplete { pass.restart() }
        _ = try await step(&pass)
      }
    } catch {}
    end(pass)
  }

  private func begin(_ count: Int) -> Pass? {
    state.withLock { state in
      state.due = min(state.due + 2 * count, max(mostDue, 2 * count))
      if state.isSweeping || state.due < state.pass.cursor.pageSize { return nil }
      state.isSweeping = true
      return state.pass
    }
  }

  private func isDue(_ count: Int) -> Bool {
    state.withLock { state in
      if state.due < count { return false }
      state.due -= count
      return true
    }
  }

  private func end(_ pass: Pass) {
    state.withLock { state in
      (state.pass, state.isSweeping) = (pass, false)
      if pass.isStuck { state.due = -pauseAfterUnlistedKeys }
    }
  }

  /// Checks the next entries of a pass, and removes those that have expired.
  ///
  /// - Returns: How many were removed.
  @concurrent func step(_ pass: inout Pass) async throws -> Int {
    let expired = try await expiredKeys(&pass)
    return expired.isEmpty ? 0 : try await remove(expired)
  }

  /// Removes those of the entries that have expired, as a change of nobody's own, so that the feed reports it to the caller too.
  ///
  /// - Returns: How many were removed. Others may have been written again.
  func remove(_ keys: [CacheKey]) async throws -> Int {
    try await ChangeOrigin.$current.withValue(nil) {
      try await base.withTransaction { [lifetimes] transaction in
        try keys.count { key in
          do {
            guard let stored = try transaction.read(key: key), try lifetimes.hasExpired(stored, key: key)
            else {
              return false
            }
          } catch let error as StorageError where error.isOfOneEntry {
            return false
          }
          try transaction.remove(key: key)
          return true
        }
      }
    }
  }

  private func expiredKeys(_ pass: inout Pass) async throws -> [CacheKey] {
    var expired: [CacheKey] = []
    for (key, stored) in try await page(&pass) {
      do {
        if try lifetimes.hasExpired(stored, key: key) { expired.append(key) }
      } catch let error as StorageError where error.isOfOneEntry {
        pass.failure = pass.failure ?? error
      }
    }
    return expired
  }

  private func page(_ pass: inout Pass) async throws -> [(key: CacheKey, data: Data)] {
    do {
      return try await pass.cursor.next(of: base)
    } catch let error as StorageError where error.isOfOneEntry {
      // The engine below has found it. One such entry does not keep the others in the place.
      pass.failure = pass.failure ?? error
      do {
        return try await pass.cursor.nextReadable(of: base)
      } catch let error as StorageError where error.isOfOneEntry {
        pass.isStuck = true
        throw error
      }
    }
  }
}
