import StockroomCore

/// A command was interrupted after it had begun to write to a place.
struct IncompletePlace: Error, CustomStringConvertible {
  let place: Place
  /// How what was written is completed. Nil if it was to be taken back.
  let completion: String?
  /// What else has failed meanwhile, such as to take it back.
  let cause: StorageError?

  var description: String {
    let texts = [
      "interrupted", completion.map { "What may have been written stays: \($0) completes it" },
      cause.map { "\($0)" },
    ]
    return "\(place): " + texts.compactMap(\.self).joined(separator: ". ") + (cause == nil ? "." : "")
  }

  /// Calls `body`, within ``CleaningUp/awaited(_:)``.
  ///
  /// - Parameter completion: What completes the place. Nil: `body` removes what it has written when its task is cancelled.
  /// - Throws: ``IncompletePlace`` if the task was cancelled and entries may be left; what `body` throws.
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
