/// The times of an entry of another engine, as an engine stores them.
package struct EntryTimes: Sendable, Hashable {
  package let createdAt: Timestamp
  /// Not before ``createdAt`` (rule W2).
  package let updatedAt: Timestamp

  /// The timestamps of the entry. If it was updated before it was created, it counts as created then.
  package init(_ entry: StorageEntry) {
    updatedAt = Timestamp(entry.updatedAt)
    createdAt = min(Timestamp(entry.createdAt), updatedAt)
  }

  /// The number of nanoseconds between the two.
  package var age: Int64 { updatedAt.nanoseconds - createdAt.nanoseconds }

  private init(createdAt: Timestamp, updatedAt: Timestamp) {
    self.createdAt = createdAt
    self.updatedAt = updatedAt
  }

  /// The timestamps of the entry once it is overwritten now.
  package var overwritten: EntryTimes {
    EntryTimes(createdAt: createdAt, updatedAt: max(updatedAt, .now()))
  }
}
