import StockroomCore

/// A command was interrupted after it had begun to write to a place.
struct IncompletePlace: Error, CustomStringConvertible {
  let place: Place
  /// What completes the entries that were written. Nil if the command was to remove them again.
  let completion: String?
  /// An error that occurred after the interruption, for instance while entries were being removed.
  let cause: StorageError?

  var description: String {
    let texts = [
      "interrupted", completion.map { "What may have been written stays: \($0) completes it" },
      cause.map { "\($0)" },
    ]
    return "\(place): " + texts.compactMap(\.self).joined(separator: ". ") + (cause == nil ? "." : "")
  }

  /// Calls `body`. Use it within ``CleaningUp/awaited(_:)``.
  ///
  /// - Parameter completion: What completes the place. Nil means that `body` removes the entries that it has written
  ///   when its task is cancelled.
  /// - Throws: ``IncompletePlace`` if the task was cancelled and entries may remain; otherwise what `body` throws.
  static func reporting<Result>(
    _ place: Place, completedBy completion: String?, _ body: () async throws -> Result
  ) async throws -> Result {
    do {
      return try await body()
    } catch let error as StorageError where Task.isCancelled {
      throw IncompletePlace(place: place, completion: completion, cause: error)
    } catch is CancellationError where completion != nil {
      throw IncompletePlace(place: place, completion: completion, cause: nil)
    }
  }
}
