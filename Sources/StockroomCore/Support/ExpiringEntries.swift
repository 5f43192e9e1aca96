/// Determines whether the entries of an engine expire. Its change feed does not report that, so a cache would return expired
/// entries.
///
/// The layer whose entries expire is in a module that the callers do not import, so it registers a function here.
package enum ExpiringEntries {
  private static let test = MutexProtected<(@Sendable (any StorageEngine) -> Bool)?>(nil)

  /// Sets the function that recognizes such an engine. Called before the first one exists.
  package static func recognize(by test: @escaping @Sendable (any StorageEngine) -> Bool) {
    Self.test.withLock { $0 = test }
  }

  /// Whether entries of the engine expire.
  package static func areExpected(in engine: any StorageEngine) -> Bool {
    guard let test = Self.test.withLock({ $0 }) else { return false }
    return test(engine)
  }
}
