/// What a copy does about entries that are in the target already.
public enum CopyTarget: Sendable, Hashable, CaseIterable {
  /// The target must be empty.
  case refuse
  /// The target must be empty, or hold what a copy has left that was killed, cancelled or failed: that goes on, and does not write again
  /// what is there. It is refused as a copy of another source if the two have no key in common, or if more than half of the entries under
  /// keys that both have were created at different times. In a target with times of its own, at least half of all its entries must
  /// have the values of the source. Nothing else is ever removed from the target.
  case resume
  /// The target may hold entries, and keeps them, in their places. Of a key that both have, the entry that was updated last is kept; that
  /// of the source, if they were updated at the same time. New entries come behind those that are there.
  case merge
}

/// How a copy is made.
public struct CopyOptions: Sendable {
  /// What it does about entries that are in the target already. Default: resumes.
  public var target: CopyTarget
  /// How many bytes of values are in memory at a time, and go into one batch, unless one value has more. Default: 4 MiB.
  public var batchSize: Int

  /// Options with these values.
  public init(target: CopyTarget = .resume, batchSize: Int = 4 << 20) {
    self.target = target
    self.batchSize = max(1, batchSize)
  }
}

/// How far a copy has come.
public struct CopyProgress: Sendable, Hashable {
  /// What a copy does.
  public enum Phase: Sendable, Hashable {
    /// Reads the source, to know which entries there are, in which order, and how large.
    case reading
    /// Writes entries to the target.
    case copying
    /// Reads source and target, and compares them.
    case verifying
  }

  /// What it does now.
  public var phase: Phase
  /// With how many entries it has done that.
  public var entries: Int
  /// How many bytes of values these have.
  public var bytes: Int
  /// With how many entries it will have done that at the end of the phase. While the source is written to, there may be more in the
  /// end.
  public var totalEntries: Int
}

/// What has been copied.
public struct CopySummary: Sendable, Hashable {
  /// How many entries the source has, all of which are in the target.
  public var entries: Int
  /// How many bytes of values these have.
  public var bytes: Int
  /// How many entries have been written, those included that have been written again because the source had changed; what an earlier
  /// copy had left there is not counted.
  public var written: Int
  /// Whether the times, and the order, were compared too. Not so where the target cannot store the times of others: there it has the
  /// order of the source as far as it tells entries apart that were created one after the other.
  public var areTimesVerified: Bool
}
