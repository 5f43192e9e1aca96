/// Whether entries of an engine expire, without a change that its feed reports: a cache of such entries would return them for too
/// long.
///
/// The layer whose entries expire is in a module that the callers do not import.
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
