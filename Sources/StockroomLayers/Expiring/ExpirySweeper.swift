import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The number of due checks that are skipped after a pass through a place whose keys cannot be listed. So nothing is checked until
/// half as many entries have been written: each attempt may read the whole place.
private let pauseAfterUnlistedKeys = 100_000
/// The maximum number of entries that are due to be checked, unless one write alone has added more.
private let mostDue = 100_000
/// The maximum number of entries that a write checks for each entry that it has written: its own two, and up to six that were left
/// by writes during another sweep.
private let mostChecksPerWrite = 8

/// Removes expired entries, a page at a time. For each entry that is written, it checks two on average, in the byte order of keys
/// if the engine has ordered scans. After the last entry it begins again.
///
/// Only one write sweeps at a time. The entries that are due for writes in the meantime are left to later writes. The number of
/// entries that a write checks is limited in proportion to those that it has written, so that no write sweeps for all others.
final class ExpirySweeper<Base: StorageEngine>: Sendable {
  /// The progress of a pass through the place.
  struct Pass: Sendable {
    fileprivate var cursor = EntryCursor()
    /// The error of the first entry that cannot be read. Such entries stay.
    fileprivate(set) var failure: StorageError?

    /// Whether the pass has ended because the entries can be neither scanned nor listed.
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

  /// Checks entries after `count` entries have been written. The write has been acknowledged, so errors are not thrown here: a
  /// later write retries, after a much longer time if the keys cannot be listed. ``step(_:)`` throws them to callers of
  /// `removeExpired()`.
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
  /// - Returns: The number of entries that were removed.
  @concurrent func step(_ pass: inout Pass) async throws -> Int {
    let expired = try await expiredKeys(&pass)
    return expired.isEmpty ? 0 : try await remove(expired)
  }

  /// Removes those of the entries that have expired, without a change origin, so that the feed reports the removal to the caller
  /// too.
  ///
  /// - Returns: The number of entries that were removed. The others may have been written again in the meantime.
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
      // The engine below cannot read an entry of the page. That must not prevent the removal of the others.
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
