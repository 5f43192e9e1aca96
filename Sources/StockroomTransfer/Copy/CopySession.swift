import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A copy in progress. It compares source and target, and copies the differences. At the end it repeats this until
/// there are no differences, at most ``maximumRounds`` times.
actor CopySession {
  /// The maximum number of entries in a batch.
  private static let mostInBatch = 1_000
  /// The maximum number of comparisons at the end. After each one that finds differences, these are copied.
  private static let maximumRounds = 3
  /// The number of entries that an interrupted merge may have written that are read at a time: others may
  /// have made their values large.
  private static let mostAnnouncedAtOnce = 16

  private let source: any StorageEngine
  private let target: any StorageEngine
  private let options: CopyOptions
  private let comparison: CopyComparison
  private let progress: @Sendable (CopyProgress) -> Void
  /// The entries that have been written by this merge.
  private var merged = MergedEntries()
  private var written = 0
  /// Whether it must still be verified that the target is a copy of the source.
  private var isResuming = false
  /// Earlier merges, if the target does not store timestamps from the source.
  private var interrupted = InterruptedMerges()
  /// Whether there is a marker of a merge, this one or another.
  private var hasMergeMarker = false
  /// When this merge wrote the marker; nil before.
  private var mergeStart: Timestamp?
  /// The entries of interrupted merges, if the target may contain a part of a batch.
  private var announced = AnnouncedEntries()
  private let ending = SingleFlight<CopySummary>()
  /// The result, once the copy is complete.
  private var summary: CopySummary?

  init(
    _ source: any StorageEngine, _ target: any StorageEngine, _ options: CopyOptions,
    _ progress: @escaping @Sendable (CopyProgress) -> Void
  ) {
    self.source = source
    self.target = target
    self.options = options
    self.progress = progress
    comparison = CopyComparison(comparesTimes: target.capabilities.contains(.preservesTimestamps))
  }

  /// Throws unless the target may be copied to, and marks it.
  func begin() async throws {
    try await source.refuseUnfinishedCopy(in: "The source")
    let isUnfinished = try await target.keyExists(UnfinishedCopy.marker)
    if options.target == .merge {
      guard isUnfinished else { return try await beginMerge() }
      throw StorageError(.unsupported, "The target holds a copy that has not been finished.")
    }
    if isUnfinished, options.target == .resume {
      isResuming = true
      return
    }
    let count = try await target.keyCount()
    guard count == 0 else {
      throw StorageError(
        .unsupported,
        isUnfinished
          ? "The target holds a copy that has not been finished, which these options do not resume."
          : "The target is not empty: it has \(count.entryCountText).")
    }
    try await target.write(markerValue, key: UnfinishedCopy.marker)
  }

  private var markerValue: Data { markerValue(announcing: announced) }

  private func markerValue(announcing entries: AnnouncedEntries) -> Data {
    let times = interrupted.lines(startingAt: mergeStart)
    return Data(("This copy has not been finished." + times + entries.lines).utf8)
  }

  /// Determines which entries interrupted merges have written: the source replaces these, no matter when they were
  /// updated last. They are recognized by the times in the marker, which are by the clock of the target. Entries of an
  /// incomplete batch have no time in the marker, and are recognized by their values.
  private func beginMerge() async throws {
    guard !comparison.comparesTimes,
      let marker = try await target.readEntries(keys: [UnfinishedCopy.mergeMarker]).first
    else { return }
    hasMergeMarker = true
    interrupted = InterruptedMerges(marker.data, updatedAt: marker.updatedAt)
    let begun = AnnouncedEntries(marker.data)
    let keys = begun.keys
    for start in stride(from: 0, to: keys.count, by: Self.mostAnnouncedAtOnce) {
      let end = min(start + Self.mostAnnouncedAtOnce, keys.count)
      let ours = try await target.readEntries(keys: Array(keys[start..<end])).filter(begun.contain)
      for entry in ours { announced.insert(entry) }
      merged.beginWriting(ours.map(ListedEntry.init), areNew: false)
    }
  }

  /// Marks the target of a merge before anything is written. The marker of an interrupted merge is overwritten, so that
  /// there is always one. Until the next batch renews the marker, it records that this merge has not written anything.
  private func markMerge() async throws {
    guard options.target == .merge, !comparison.comparesTimes, mergeStart == nil else { return }
    try await target.write(markerValue, key: UnfinishedCopy.mergeMarker)
    hasMergeMarker = true
    mergeStart = try await target.updatedAt(key: UnfinishedCopy.mergeMarker).map { Timestamp($0) }
  }

  /// The key of the marker in the target; nil if none is needed.
  private var currentMarker: CacheKey? {
    options.target == .merge ? hasMergeMarker ? UnfinishedCopy.mergeMarker : nil : UnfinishedCopy.marker
  }

  /// Makes the target equal to the current state of the source.
  func copyEverything() async throws { try await perform(compare().plan) }

  /// Makes some entries of the target equal to the current state of the source.
  func copy(_ keys: Set<CacheKey>) async throws {
    // The source may contain the marker of another copy, which is not an entry.
    let keys = Array(keys.filter { !UnfinishedCopy.isMarker($0) })
    let source = try await EntryListing(of: keys, in: source, batchSize: options.batchSize)
    let target = try await EntryListing(of: keys, in: target, batchSize: options.batchSize)
    if options.target == .merge {
      try await perform(
        CopyPlan(merging: source, into: target, merged.filtered(by: keys), interrupted, comparison))
    } else {
      try await perform(CopyPlan(ofSome: source, to: target, comparison))
    }
  }

  /// Makes the target equal to the source, which no longer changes, and verifies it. After that, others may write to
  /// the target, and later calls only return the summary.
  func end() async throws -> CopySummary {
    if let summary { return summary }
    return try await ending.value { try await self.makeEqual() }
  }

  private func makeEqual() async throws -> CopySummary {
    // The work may have ended between the check of this call and joining it.
    if let summary { return summary }
    var last: EntryListing?
    for _ in 0..<Self.maximumRounds {
      let (source, plan) = try await compare()
      if plan.isEmpty { return try await finish(with: source) }
      if plan.isOfRemovals {
        // The plan has only removals, for example because entries of the source have expired. They are performed here:
        // another comparison could find just as many new ones.
        try await perform(plan)
        try await verifyRemoval(of: plan.removed)
        return try await finish(with: source)
      }
      if let last, last.isSame(as: source) {
        let key = (plan.changed + plan.missing).first?.key ?? plan.removed[0]
        throw StorageError(
          .corrupted,
          "The target does not return what was written. Different: "
            + "\((plan.removed.count + plan.writtenCount).entryCountText), one of them with the key \(key).")
      }
      last = source
      try await perform(plan)
    }
    throw StorageError(.conflict, "The source is still being changed: the copy cannot be finished.")
  }

  private func finish(with source: EntryListing) async throws -> CopySummary {
    if let currentMarker { try await target.remove(key: currentMarker) }
    let summary = CopySummary(
      entries: source.entries.count, bytes: source.byteCount, written: written,
      areTimesVerified: comparison.comparesTimes)
    self.summary = summary
    return summary
  }

  private func verifyRemoval(of keys: [CacheKey]) async throws {
    let removed = Set(keys)
    guard let key = try await target.allKeys().first(where: removed.contains) else { return }
    throw StorageError(.corrupted, "The target has an entry with the key \(key), which was removed.")
  }

  // MARK: Steps

  private func compare() async throws -> (source: EntryListing, plan: CopyPlan) {
    let source = try await list(source, .reading)
    let target = try await list(target, .verifying)
    if isResuming { try await refuseAnotherSource(source, target) }
    let (options, comparison, interrupted) = (options, comparison, interrupted)
    let merged = merged
    let plan = try await source.working(with: target) {
      options.target == .merge
        ? CopyPlan(merging: source, into: target, merged, interrupted, comparison)
        : CopyPlan(from: source, to: target, comparison)
    }
    return (source, plan)
  }

  /// Throws unless the target holds a part of a copy of this source. The entries that have been copied before
  /// show which source that was.
  private func refuseAnotherSource(_ source: EntryListing, _ target: EntryListing) async throws {
    let comparison = comparison
    guard try await source.working(with: target, { comparison.isBegunCopy(target, of: source) }) else {
      throw StorageError(
        .unsupported,
        "The target holds an unfinished copy of another source: most of its \(target.entries.count.entryCountText) are not "
          + "those of this one. Copy from the other source, or call removeAllData() of the target and copy again."
      )
    }
    isResuming = false
  }

  private func list(_ engine: any StorageEngine, _ phase: CopyProgress.Phase) async throws -> EntryListing {
    let keys = try await engine.allKeys().filter { !UnfinishedCopy.isMarker($0) }
    return try await EntryListing(of: keys, in: engine, batchSize: options.batchSize) {
      [progress] entries, bytes in
      progress(CopyProgress(phase: phase, entries: entries, bytes: bytes, totalEntries: keys.count))
    }
  }

  private func perform(_ plan: CopyPlan) async throws {
    for start in stride(from: 0, to: plan.removed.count, by: Self.mostInBatch) {
      try Task.checkCancellation()
      let keys = plan.removed[start..<min(start + Self.mostInBatch, plan.removed.count)]
      try await target.remove(keys: Array(keys))
      for key in keys { merged.remove(key) }
    }
    var state = CopyProgress(phase: .copying, entries: 0, bytes: 0, totalEntries: plan.writtenCount)
    try await write(plan.changed, areNew: false, &state)
    try await write(plan.missing, areNew: true, &state)
  }

  /// The marker, to be written with each batch; empty if there is none. So it does not expire before the entries in an
  /// engine where entries expire, and its time is that of the last batch.
  private func renewedMarker(for batch: [StorageEntry]) -> [StorageEntry] {
    guard !batch.isEmpty, let currentMarker else { return [] }
    let now = Timestamp.now().date
    return [StorageEntry(key: currentMarker, data: markerValue, createdAt: now, updatedAt: now)]
  }

  private func write(_ entries: [ListedEntry], areNew: Bool, _ state: inout CopyProgress) async throws {
    var start = 0
    while start < entries.count {
      try Task.checkCancellation()
      var end = start
      var size = 0
      while end < entries.count, end - start < Self.mostInBatch {
        size += entries[end].size
        if end > start, size > options.batchSize { break }
        end += 1
      }
      // Entries that have been removed in the meantime are skipped.
      let batch = try await source.readEntries(keys: entries[start..<end].map(\.key))
      if !batch.isEmpty { try await markMerge() }
      let listed = options.target == .merge ? batch.map(ListedEntry.init) : []
      merged.beginWriting(listed, areNew: areNew)
      try await writeToTarget(batch)
      merged.endWriting(listed)
      written += batch.count
      state.entries += end - start
      state.bytes += batch.reduce(0) { $0 + $1.data.count }
      progress(state)
      start = end
    }
  }

  private func writeToTarget(_ batch: [StorageEntry]) async throws {
    guard leavesPartsOfBatches, !batch.isEmpty, let marker = currentMarker else {
      return try await target.writeEntries(batch + renewedMarker(for: batch))
    }
    var announcing = announced
    for entry in batch { announcing.insert(entry) }
    try await target.write(markerValue(announcing: announcing), key: marker)
    try await target.writeEntries(batch)
    // From now on, the time of the marker shows that the merge wrote them.
    for entry in batch { announced.remove(entry.key) }
    try await target.write(markerValue, key: marker)
  }

  /// Whether an interrupted merge may leave entries that were written after the marker.
  private var leavesPartsOfBatches: Bool {
    options.target == .merge && !comparison.comparesTimes && !target.capabilities.contains(.atomicBatches)
  }
}

extension EntryListing {
  /// Whether both listings have the same entries.
  fileprivate func isSame(as other: EntryListing) -> Bool {
    entries.elementsEqual(other.entries) {
      $0.key == $1.key && $0.times == $1.times && $0.sequence == $1.sequence && $0.hasSameValue(as: $1)
    }
  }
}
