import StockroomCore

/// A command was interrupted after it had begun to write to a place.
struct IncompletePlace: Error, CustomStringConvertible {
  let place: Place
  /// Why what was written could not be taken back, if that was to be done.
  let cause: StorageError?

  var description: String {
    guard let cause else {
      return "\(place): interrupted; what has been written stays. With --merge the command completes it."
    }
    return "\(place): interrupted, and incomplete: \(cause)"
  }

  /// Calls `body`, for the end of which an interrupted command waits.
  ///
  /// - Parameter isTakenBack: Whether `body` removes what it has written when its task is cancelled.
  /// - Throws: ``IncompletePlace`` if the task was cancelled and entries may be left; what `body` throws.
  static func orWhole<Result>(
    _ place: Place, isTakenBack: Bool = false, _ body: () async throws -> Result
  ) async throws -> Result {
    try await CleaningUp.awaited {
      do {
        return try await body()
      } catch let error as StorageError where Task.isCancelled {
        throw IncompletePlace(place: place, cause: error)
      } catch is CancellationError where !isTakenBack {
        throw IncompletePlace(place: place, cause: nil)
      }
    }
  }
}
