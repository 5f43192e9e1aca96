/// How a copy treats entries that are already in the target.
public enum CopyTarget: Sendable, Hashable, CaseIterable {
  /// The target must be empty.
  case refuse
  /// The target must be empty, or hold the result of a copy that was killed, cancelled or failed. The copy continues:
  /// it does not write entries again that are already there, and removes entries that the source does not have, or has
  /// in another order.
  ///
  /// A target that holds a copy of another source is refused, with nothing removed. It counts as such if the two have
  /// no entry in common, or if more than half of the entries under common keys were created at different times. In a
  /// target that does not store timestamps from the source, at least half of all entries must have the values of the
  /// source.
  case resume
  /// The target may hold entries, and keeps them, in their positions. If both have a key, the entry that was
  /// updated last is kept; if they were updated at the same time, the one of the source. New entries are
  /// appended.
  case merge
}

/// The options of a copy.
public struct CopyOptions: Sendable {
  /// How it treats entries that are already in the target. Default: resumes.
  public var target: CopyTarget
  /// The approximate maximum number of bytes of values in memory at a time, and the maximum in one batch, unless one
  /// value is larger. Default: 4 MiB.
  public var batchSize: Int

  /// Creates options with these values.
  public init(target: CopyTarget = .resume, batchSize: Int = 4 << 20) {
    self.target = target
    self.batchSize = max(1, batchSize)
  }
}

/// The progress of a copy.
public struct CopyProgress: Sendable, Hashable {
  /// The phases of a copy.
  public enum Phase: Sendable, Hashable {
    /// Reads the source to determine its entries, their order, and their sizes.
    case reading
    /// Writes entries to the target.
    case copying
    /// Reads source and target, and compares them.
    case verifying
  }

  /// The current phase.
  public var phase: Phase
  /// The number of entries that have been processed in this phase.
  public var entries: Int
  /// The number of bytes of the values of these entries.
  public var bytes: Int
  /// The number of entries that will have been processed at the end of the phase. If the source is written to
  /// in the meantime, there may be more in the end.
  public var totalEntries: Int
}

/// The result of a copy.
public struct CopySummary: Sendable, Hashable {
  /// The number of entries of the source, all of which are in the target.
  public var entries: Int
  /// The number of bytes of the values of these entries.
  public var bytes: Int
  /// The number of entries that have been written, including those that have been written again because the
  /// source had changed, but not those that an earlier copy had written.
  public var written: Int
  /// Whether the timestamps and the order were compared too. False if the target does not store timestamps from the
  /// source. Its order is then that of the source only as far as it distinguishes entries that were created one after
  /// the other.
  public var areTimesVerified: Bool
}
