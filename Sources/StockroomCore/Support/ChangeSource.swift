/// What a ``ChangeFeed`` has to know about a place that several processes change.
package protocol ChangeSource: AnyObject, Sendable {
  /// The files that are written when anybody commits, also programs that know nothing of ``ChangeFeed``. Often before the commit can
  /// be read.
  var writtenFiles: [String] { get }

  /// The directory whose files are the entries, if the engine keeps them so. Files that other programs put there are noticed where the
  /// system tells their names, as Linux does.
  var entryDirectory: String? { get }

  /// The number of the latest commit that can be read, one more than that of the commit before. Nil if it cannot be told at the moment.
  func latestCommit() throws -> UInt64?

  /// Whether nobody is in the middle of a commit.
  func isSettled() throws -> Bool

  /// The key of the entry in a file of ``entryDirectory``, or nil if the file is no entry.
  func key(ofFile name: [UInt8]) -> CacheKey?

  /// Releases what the source has open.
  func close()
}

extension ChangeSource {
  package var entryDirectory: String? { nil }
  package func isSettled() throws -> Bool { true }
  package func key(ofFile name: [UInt8]) -> CacheKey? { nil }
}
