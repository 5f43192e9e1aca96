/// Whether entries of an engine disappear by themselves, without a change that its feed reports: what has such entries in memory would return
/// them for too long.
///
/// The layer that does this is in a module that is not imported by those that have to know.
package enum ExpiringEntries {
  private static let test = MutexProtected<(@Sendable (any StorageEngine) -> Bool)?>(nil)

  /// Sets what recognizes such an engine, which is called before there is one.
  package static func recognize(by test: @escaping @Sendable (any StorageEngine) -> Bool) {
    Self.test.withLock { $0 = test }
  }

  /// Whether entries of the engine disappear by themselves.
  package static func areExpected(in engine: any StorageEngine) -> Bool {
    guard let test = Self.test.withLock({ $0 }) else { return false }
    return test(engine)
  }
}
