/// The timestamps that a caller passes with an entry, as engines store them.
package struct EntryTimes: Sendable, Hashable {
  package let createdAt: Timestamp
  /// Not before ``createdAt`` (rule W2).
  package let updatedAt: Timestamp

  /// The timestamps of the entry. An entry that was updated before it was created counts as created when it was updated.
  package init(_ entry: StorageEntry) {
    updatedAt = Timestamp(entry.updatedAt)
    createdAt = min(Timestamp(entry.createdAt), updatedAt)
  }

  /// The number of nanoseconds from the creation to the last update.
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
