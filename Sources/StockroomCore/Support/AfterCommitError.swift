/// An error that a ``GroupCommitter``'s `commit` has encountered after all of its requests were committed,
/// for example because the files have been replaced in the meantime. The requests must not be committed
/// again. Their callers get the underlying error.
package struct AfterCommitError: Error {
  package let underlying: any Error

  package init(_ underlying: any Error) { self.underlying = underlying }

  /// Does `work` after a commit, such as a check of the place.
  ///
  /// - Throws: ``AfterCommitError`` with the error of `work` if it throws twice.
  package static func marking(_ work: () throws -> Void) throws {
    do { try lookingAgain(work) } catch { throw AfterCommitError(error) }
  }

  /// Does `work`, a check of the place after a commit, and repeats it once if it throws: a check can fail for
  /// reasons that do not concern the place, and a committed request must not throw for that (rule F4).
  package static func lookingAgain(_ work: () throws -> Void) throws {
    do { try work() } catch { try work() }
  }
}
