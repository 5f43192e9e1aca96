import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// One connection that reads, opened when it is needed, on a thread of its own.
final class PostgreSQLReader: Sendable {
  private let connector: PostgreSQLConnector
  private let thread = DedicatedThread()
  /// Used on the thread only.
  private let connection = MutexProtected<PostgreSQLConnection?>(nil)

  init(_ connector: PostgreSQLConnector) { self.connector = connector }

  func start(_ work: @escaping @Sendable () -> Void) throws { try thread.enqueue(work) }

  func stop() { thread.stop() }

  /// Reads a group of keys with one statement for all values, and one for all times.
  func perform(_ reads: [PostgreSQLReaders.SmallRead], meanwhile: @escaping () -> Void) {
    let reads = reads.filter { $0.pending.begin() }
    serve(reads.map(\.pending), meanwhile) { try $0.answer(reads, until: $1) }
  }

  /// Reads what takes long.
  func perform(_ read: any LargeRead, meanwhile: @escaping () -> Void) {
    guard read.pending.begin() else { return }
    serve([read.pending], meanwhile) { connection, _ in try read.run(on: connection) }
  }

  /// Calls `body` with a connection and the first deadline. The calls that it does not end fail if it does.
  private func serve(
    _ calls: [any PostgreSQLPendingCall], _ meanwhile: @escaping () -> Void,
    _ body: (PostgreSQLConnection, ContinuousClock.Instant) throws -> Void
  ) {
    guard let deadline = calls.map(\.deadline).min() else { return }
    do {
      try retrying(until: deadline, while: { calls.contains { $0.isWanted } }, meanwhile) {
        try body($0, deadline)
      }
    } catch {
      for call in calls { call.fail(error) }
    }
  }

  /// Calls `body` with a connection, and again if that is lost on the way: a read changes nothing (rule N2).
  private func retrying(
    until deadline: ContinuousClock.Instant, while isWanted: @escaping () -> Bool,
    _ meanwhile: @escaping () -> Void, _ body: (PostgreSQLConnection) throws -> Void
  ) throws {
    func lookAround() throws {
      meanwhile()
      if !isWanted() { throw CancellationError() }
    }
    while true {
      let current =
        try connection.withLock { $0.take() } ?? connector.connect(until: deadline, meanwhile: lookAround)
      current.meanwhile = lookAround
      defer {
        current.meanwhile = {}
        if !current.isLost { connection.withLock { $0 = current } }
      }
      do {
        return try body(current)
      } catch let failure as PostgreSQLFailure {
        guard failure.isConnectionLost || failure.isConcurrency, ContinuousClock.now < deadline else {
          throw StorageError.postgreSQL(failure, "Reading from \(connector.address) failed")
        }
      }
    }
  }
}

extension PostgreSQLConnection {
  /// Answers the reads.
  fileprivate func answer(
    _ reads: [PostgreSQLReaders.SmallRead], until deadline: ContinuousClock.Instant
  ) throws {
    var values: [(key: CacheKey, call: PostgreSQLCall<Data?>)] = []
    var times: [(key: CacheKey, call: PostgreSQLCall<EntryHeader?>)] = []
    for read in reads {
      switch read {
      case .value(let key, let call): values.append((key, call))
      case .times(let key, let call): times.append((key, call))
      }
    }
    var steps: [Step] = []
    if values.count == 1 {
      steps.append(Step(.value, .key(values[0].key)))
    } else if !values.isEmpty {
      steps.append(Step(.values, PostgreSQLArray.keys(values.map(\.key))))
    }
    if !times.isEmpty { steps.append(Step(.times, PostgreSQLArray.keys(times.map(\.key)))) }
    let results = try run(steps, until: deadline)
    guard results.count == steps.count else {
      throw StorageError(.io, "The server has left statements unanswered.")
    }

    if values.count == 1 {
      values[0].call.end(.success(results[0].rowCount == 0 ? nil : results[0].data(0, 0)))
    } else if !values.isEmpty {
      let found = try results[0].positions(in: values)
      for (index, value) in values.enumerated() {
        value.call.end(.success(found[index].map { results[0].data($0, 1) }))
      }
    }
    if !times.isEmpty, let result = results.last {
      let found = try result.positions(in: times)
      for (index, time) in times.enumerated() {
        time.call.end(
          Result { try found[index].map { try result.header($0, created: 1, updated: 2, sequence: nil) } })
      }
    }
  }
}

extension PostgreSQLResult {
  /// In which row the answer to each request is, if there is one. The rows have the number of their request in front.
  func positions(in requests: some Collection) throws -> [Int?] {
    var rows = [Int?](repeating: nil, count: requests.count)
    for row in 0..<rowCount {
      let index = Int(try number(row, 0)) - 1
      guard rows.indices.contains(index) else {
        throw StorageError(.corrupted, "The server has answered a request that was not made.")
      }
      rows[index] = row
    }
    return rows
  }
}
