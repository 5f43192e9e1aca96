import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The statements of a group of requests.
struct PostgreSQLBatch {
  private let removesAll: Bool
  private let removed: [CacheKey]
  /// In the order in which new keys are created.
  private let written: [(key: CacheKey, data: Data, times: EntryTimes?)]
  /// Whether any of them is written with given timestamps.
  private let hasTimes: Bool
  /// The written entries of each statement.
  private let portions: [Range<Int>]
  /// Whether row locks suffice to separate concurrent writers: see ``steps(_:_:_:isOpen:isPooled:)``.
  private let isShared: Bool

  var isEmpty: Bool { !removesAll && removed.isEmpty && written.isEmpty }

  /// - Parameter times: The result of ``Swift/Collection/times(of:)`` for the requests.
  init(_ requests: [[StorageOperation]], _ times: [EntryTimes?]) {
    var merged = MergedOperations()
    for (index, operation) in requests.joined().enumerated() {
      switch operation {
      case .write(let data, let key):
        merged.write(data, key: key, times: times.isEmpty ? nil : times[index])
      case .remove(let key): merged.remove(key)
      case .removeAll: merged.removeAll()
      }
    }
    removesAll = merged.removesAll
    removed = merged.changes.filter { $0.value.isRenewed }.keys.sorted()
    written = merged.inOrder.compactMap { key, change in change.data.map { (key, $0, change.times) } }
    hasTimes = !times.isEmpty && written.contains { $0.times != nil }
    portions = Self.portions(of: written.lazy.map { Self.size(of: $0.key) + $0.data.count + 4 })
    isShared =
      !removesAll && (requests.allSatisfy { $0.count <= 1 } || requests.joined().allSatisfy(\.isWrite))
  }

  /// Whether the batch is one statement that itself reports whether the writer has been fenced off. A batch with
  /// removals is not: such a statement sees the state before it had the lock, and would miss a row that another
  /// transaction has removed and written again in the meantime.
  private func isFencedItself(isOpen: Bool) -> Bool {
    !isOpen && isShared && !hasTimes && removed.isEmpty && portions.count == 1
  }

  /// The statements to send.
  ///
  /// Writers share a lock. Row locks between them make writes of many keys at once, and removals of single keys,
  /// atomic. They do not suffice for a batch that removes, nor for removals that are committed together with another
  /// request's batch: a row that another transaction is about to insert cannot be removed, so half of what that
  /// transaction wrote could remain. Such batches take the lock exclusively, as do transactions that have begun.
  /// Writers of new keys take an additional lock, so that they commit one after another.
  ///
  /// - Parameters:
  ///   - isOpen: Whether the transaction has begun.
  ///   - isPooled: Whether the session may have another isolation level than `READ COMMITTED`, at which a
  ///     statement would not see what was committed while the one before it waited for the lock.
  func steps(
    _ writer: UUID, _ epoch: Int64, _ announcement: String, isOpen: Bool, isPooled: Bool
  ) -> [PostgreSQLConnection.Step] {
    var steps =
      isFencedItself(isOpen: isOpen)
      ? [fencedWrite(writer, epoch, announcement)]
      : separateSteps(writer, epoch, announcement, isOpen: isOpen)
    let begins = isPooled && !isOpen
    if begins { steps.insert(.init(.beginWriting), at: 0) }
    if isOpen || begins { steps.append(.init(.commit)) }
    return steps
  }

  private func fencedWrite(
    _ writer: UUID, _ epoch: Int64, _ announcement: String
  ) -> PostgreSQLConnection.Step {
    if written.count == 1 {
      let entry = written[0]
      return .init(
        .fencedWriteOfOne, writer.parameter, .number(epoch), .key(entry.key), .bytes(entry.data),
        .text(announcement))
    }
    let portion = portion(written.indices)
    return .init(
      .fencedWrite, writer.parameter, .number(epoch), portion.keys.parameter, portion.values.parameter,
      .text(announcement))
  }

  private func separateSteps(
    _ writer: UUID, _ epoch: Int64, _ announcement: String, isOpen: Bool
  ) -> [PostgreSQLConnection.Step] {
    var steps: [PostgreSQLConnection.Step] = []
    if !isOpen { steps.append(.init(isShared ? .lockShared : .lockExclusively)) }
    if !isOpen, isShared, !written.isEmpty { steps.append(.init(.lockOrder)) }
    steps.append(.init(.fence, writer.parameter, .number(epoch)))
    if removesAll { steps.append(.init(.removeAll)) }
    // Locks all rows in byte order first, so that the following statements cannot deadlock.
    if !removed.isEmpty, !isOpen, isShared, !written.isEmpty {
      steps += Self.steps(.lockRows, (removed + written.map(\.key)).sorted())
    }
    steps += Self.steps(.remove, removed)
    steps += portions.map { portion($0).step }
    steps.append(.init(.notify, .text(announcement)))
    return steps
  }

  /// The maximum number of bytes of keys and values in one statement, unless it writes one entry. The server ends a
  /// session that sends more than 1 GiB.
  static let statementSize = 64 << 20

  /// Divides elements of these sizes among statements. Returns the range of elements of each statement.
  private static func portions(of sizes: some Sequence<Int>) -> [Range<Int>] {
    var portions: [Range<Int>] = []
    var (start, end, size) = (0, 0, 0)
    for added in sizes {
      if end > start, size + added > statementSize {
        portions.append(start..<end)
        (start, size) = (end, 0)
      }
      size += added
      end += 1
    }
    if start < end { portions.append(start..<end) }
    return portions
  }

  /// Each element of an array is preceded by its length.
  private static func size(of key: CacheKey) -> Int { key.value.utf8.count + 4 }

  /// One statement for each portion of the keys, in the order of the keys.
  private static func steps(
    _ statement: PostgreSQLStatement, _ keys: [CacheKey]
  ) -> [PostgreSQLConnection.Step] {
    portions(of: keys.lazy.map { Self.size(of: $0) }).map { .init(statement, PostgreSQLArray.keys(keys[$0])) }
  }

  /// Some of the entries as arrays.
  private func portion(_ indices: Range<Int>) -> Portion {
    var portion = Portion(hasTimes: hasTimes)
    for entry in written[indices] { portion.append(entry.key, entry.data, entry.times) }
    return portion
  }
}

/// Entries that one statement writes.
private struct Portion {
  private(set) var keys = PostgreSQLArray()
  private(set) var values = PostgreSQLArray()
  private var created = PostgreSQLArray(of: .numbers)
  private var updated = PostgreSQLArray(of: .numbers)
  /// The keys of entries that get the time of the commit.
  private var keysWithoutTimes = PostgreSQLArray()
  private let hasTimes: Bool

  init(hasTimes: Bool) { self.hasTimes = hasTimes }

  mutating func append(_ key: CacheKey, _ data: Data, _ times: EntryTimes?) {
    key.withUTF8 { keys.append($0) }
    data.withUnsafeBytes { values.append($0) }
    guard hasTimes else { return }
    created.append(times?.createdAt.nanoseconds)
    updated.append(times?.updatedAt.nanoseconds)
    if times == nil { key.withUTF8 { keysWithoutTimes.append($0) } }
  }

  var step: PostgreSQLConnection.Step {
    guard hasTimes else { return .init(.write, keys.parameter, values.parameter) }
    return .init(
      .writeWithTimes, keys.parameter, values.parameter, created.parameter, updated.parameter,
      keysWithoutTimes.parameter)
  }
}

extension StorageOperation {
  fileprivate var isWrite: Bool { if case .write = self { true } else { false } }
}
