import StockroomCore

extension StorageChanges {
  /// The stream of what `transform` makes of each change; it leaves out those of which it makes nil.
  func mapping(_ transform: @escaping @Sendable (StorageChange) -> StorageChange?) -> StorageChanges {
    let (changes, continuation) = StorageChanges.makeStream(leavingOut: origin)
    let task = Task {
      for await change in self {
        if let mapped = transform(change) { continuation.send(mapped) }
      }
      continuation.finish()
    }
    continuation.onTermination { task.cancel() }
    return changes
  }
}
