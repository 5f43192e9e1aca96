/// How a ``ChangeFeed`` detects commits to a place that several processes may change.
package protocol ChangeSource: AnyObject, Sendable {
  /// The files that are written by every commit, including those of programs that do not use ``ChangeFeed``.
  /// They are often written before the commit can be read.
  var writtenFiles: [String] { get }

  /// Further files that commits write. They are watched only while there is no ``ChangeLog`` at its path, since commits cannot
  /// notify subscribers by it then.
  var filesWrittenWithoutLog: [String] { get }

  /// The directory whose files are the entries, if the engine stores them like that. Files that other
  /// programs put there are detected if the system reports their names, as Linux does.
  var entryDirectory: String? { get }

  /// The number of the latest commit that can be read. Each commit increases it by one. Nil if it cannot be determined at the
  /// moment.
  func latestCommit() throws -> UInt64?

  /// Whether no commit is in progress.
  func isSettled() throws -> Bool

  /// The key of the entry in a file of ``entryDirectory``, or nil if the file is not an entry.
  func key(ofFile name: [UInt8]) -> CacheKey?

  /// Releases the resources of the source.
  func close()
}

extension ChangeSource {
  package var filesWrittenWithoutLog: [String] { [] }
  package var entryDirectory: String? { nil }
  package func isSettled() throws -> Bool { true }
  package func key(ofFile name: [UInt8]) -> CacheKey? { nil }
}
