import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Removes expired entries, some at a time: for each entry that is written it looks at two, round and round.
final class ExpirySweeper<Base: StorageEngine>: Sendable {
  /// The most entries that are looked at in one step.
  private static var largestStep: Int { 128 }
  /// A step that reads more bytes is followed by a smaller one.
  private static var mostBytes: Int { 1 << 20 }

  /// How far a pass through the place has come.
  struct Pass: Sendable {
    fileprivate var last: CacheKey?
    /// What is left to look at, where the engine has no ordered scans.
    fileprivate var rest: ArraySlice<CacheKey>?
    fileprivate var stepSize = largestStep
    fileprivate(set) var isOver = false
  }

  private struct State {
    var pass = Pass()
    /// How many entries are due to be looked at.
    var due = 0
    var isSweeping = false
  }

  private let base: Base
  private let lifetimes: Lifetimes
  private let state = MutexProtected(State())

  init(base: Base, lifetimes: Lifetimes) { (self.base, self.lifetimes) = (base, lifetimes) }

  /// Looks at some entries for `count` that have been written. The write has been acknowledged: what goes wrong here is tried again
  /// with a later one, and ``step(_:)`` throws it to who asks for it.
  func entriesWereWritten(_ count: Int) async {
    guard base.capabilities.contains(.transactions), var pass = begin(count) else { return }
    do {
      while isDue(pass.stepSize) {
        if pass.isOver { pass = Pass() }
        _ = try await step(&pass)
      }
    } catch {
      pass = Pass()
    }
    end(pass)
  }

  private func begin(_ count: Int) -> Pass? {
    state.withLock { state in
      state.due += 2 * count
      if state.isSweeping || state.due < state.pass.stepSize { return nil }
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

  private func end(_ pass: Pass) { state.withLock { ($0.pass, $0.isSweeping) = (pass, false) } }

  /// Looks at the next entries of a pass, and removes those that have expired.
  ///
  /// - Returns: How many were removed.
  @concurrent func step(_ pass: inout Pass) async throws -> Int {
    let page = try await page(&pass)
    var look = lifetimes.look()
    var bytes = 0
    let expired = try page.filter { key, stored in
      bytes += stored.count
      return try look.isExpired(stored, key: key)
    }
    pass.stepSize =
      bytes > Self.mostBytes ? max(1, pass.stepSize / 2) : min(Self.largestStep, pass.stepSize * 2)
    if expired.isEmpty { return 0 }
    // Some of them may have been written again. That their time is over is no change of the caller's own, who has to hear of it.
    return try await ChangeOrigin.$current.withValue(nil) {
      try await base.withTransaction { [lifetimes] transaction in
        try expired.count { key, _ in
          guard let stored = try transaction.read(key: key), try lifetimes.isExpired(stored, key: key) else {
            return false
          }
          try transaction.remove(key: key)
          return true
        }
      }
    }
  }

  private func page(_ pass: inout Pass) async throws -> [(key: CacheKey, data: Data)] {
    if base.capabilities.contains(.orderedScans) {
      let page = try await base.scan(KeyRange(after: pass.last, upTo: nil), limit: pass.stepSize)
      pass.last = page.last?.key
      pass.isOver = page.count < pass.stepSize
      return page
    }
    var rest: ArraySlice<CacheKey>
    if let known = pass.rest { rest = known } else { rest = try await base.allKeys()[...] }
    let page = try await base.readDataAndKeys(keys: Array(rest.prefix(pass.stepSize)))
    rest = rest.dropFirst(pass.stepSize)
    (pass.rest, pass.isOver) = (rest, rest.isEmpty)
    return page
  }
}
