/// An error that a ``GroupCommitter``'s `commit` has encountered after all of its requests were committed, for example because
/// the files have been replaced in the meantime. The requests must not be committed again. Their callers throw the underlying
/// error.
package struct AfterCommitError: Error {
  package let underlying: any Error

  /// - Parameter error: The error. If its code would mean that nothing has changed, it becomes the underlying error of a new one
  ///   with code `io`.
  package init(_ error: any Error) {
    if let error = error as? StorageError, ![.io, .corrupted, .outcomeUnknown].contains(error.code) {
      underlying = StorageError(
        .io, "A change has been made or may still be made, but a later step has failed",
        underlying: error)
    } else {
      underlying = error
    }
  }

  /// Does `work` after a commit, such as a check of the place.
  ///
  /// - Throws: ``AfterCommitError`` with the error of `work` if it throws twice.
  package static func marking(_ work: () throws -> Void) throws {
    do { try retryingOnce(work) } catch { throw AfterCommitError(error) }
  }

  /// Does `work`, a check of the place after a commit, and repeats it once if it throws: a check can fail for
  /// reasons that do not concern the place, and a committed request must not throw for that (rule F4).
  package static func retryingOnce(_ work: () throws -> Void) throws {
    do { try work() } catch { try work() }
  }
}
