import StockroomCore

/// The connections to a namespace: one that writes, one that listens while there are subscribers, and those that read.
final class PostgreSQLDatabase: Sendable {
  let gate: Gate
  private let connector: PostgreSQLConnector
  private let committer: PostgreSQLCommitter
  private let writers: PostgreSQLWriters
  private let readers: PostgreSQLReaders
  private let listener: PostgreSQLListener
  let hub = ChangeHub()

  init(_ connector: PostgreSQLConnector, maximumConnections: Int) throws {
    self.connector = connector
    gate = Gate(path: "\(connector.address)")
    committer = PostgreSQLCommitter(connector, hub)
    writers = PostgreSQLWriters(committer, timeLimit: connector.settings.timeLimit)
    readers = PostgreSQLReaders(connector, maximum: max(3, maximumConnections) - 2)
    listener = try PostgreSQLListener(connector, committer, hub)
    connector.onMove { [weak listener] in listener?.move() }
    connector.share.setHolder(of: .writing, committer.holder)
    connector.share.setHolder(of: .reading, readers.holder)
  }

  deinit {
    hub.finish()
    // Does not remove the engine's row from the server: a deinitializer must not wait for the network.
    release()
  }

  /// Creates the tables of the namespace if they do not exist.
  func open() async throws {
    try Task.checkCancellation()
    let deadline = ContinuousClock.now + connector.settings.timeLimit
    try await writers.run { [committer] flag in try committer.open(until: deadline, meanwhile: flag.check) }
  }

  /// Calls `body` with the readers if the database is open.
  func read<Result>(_ body: (PostgreSQLReaders) async throws -> Result) async throws -> Result {
    try gate.enter()
    defer { gate.leave() }
    return try await body(readers)
  }

  /// Returns once the request is committed, together with those of other tasks.
  func commit(_ request: WriteRequest) async throws {
    try gate.enter()
    defer { gate.leave() }
    guard !request.isEmpty else { return }
    guard connector.settings.access == .readWrite else {
      throw StorageError(
        .readOnly, "\(connector.place.schema) in \(connector.address) was opened as read-only.")
    }
    try await writers.submit(request)
  }

  /// A stream of the changes from now on.
  func changes() async throws -> StorageChanges {
    try gate.enter()
    defer { gate.leave() }
    guard connector.settings.access == .readWrite else {
      throw StorageError(
        .unsupported,
        "\(connector.place.schema) in \(connector.address) was opened as read-only, so it has no change feed."
      )
    }
    guard !connector.settings.isPooled else {
      throw StorageError(.unsupported, "Notifications do not arrive behind a transaction pooler.")
    }
    let changes = hub.subscribe(without: ChangeOrigin.current) { [weak listener] in listener?.stopIfUnused() }
    try await listener.start()
    return changes
  }

  func close() async throws {
    try await gate.close {
      hub.finish()
      // Waits for a write whose caller has given up and which still uses the connection, but not for the body of a
      // cancelled transaction, which may run for any length of time.
      if !committer.runsBodies { try await writers.run { [committer] _ in committer.forget() } }
      try await DedicatedThread.runOnce { [self] in release() }
    }
  }

  /// Waits for the threads, each of which ends soon, except for one that runs the body of a transaction.
  private func release() {
    listener.close()
    readers.close()
    writers.close()
    committer.close()
  }
}

extension PostgreSQLStorageEngine {
  /// Removes all namespaces whose names have this prefix, with their contents. For namespaces that conformance checks
  /// and benchmarks have left.
  package static func removeNamespaces(beginningWith prefix: String, at connection: String) async throws {
    let address = try PostgreSQLAddress(connection)
    let settings = PostgreSQLSettings(durability: .process, timeLimit: .seconds(60), isPooled: false)
    try await DedicatedThread.runOnce {
      func run(_ step: PostgreSQLConnection.Step, in namespace: String) throws -> PostgreSQLResult? {
        let deadline = ContinuousClock.now + settings.timeLimit
        let connector = PostgreSQLConnector(address, try PostgreSQLNamespace(namespace), settings)
        return try connector.connect(until: deadline, isPatient: false).run([step], until: deadline).first
      }
      guard let names = try run(.init(.list, .text(prefix)), in: prefix) else { return }
      for row in 0..<names.rowCount {
        if let name = names.text(row, 0) { _ = try run(.init(.drop), in: name) }
      }
    }
  }
}

extension DedicatedThread {
  /// Runs `work` on a new thread, which ends afterwards.
  fileprivate static func runOnce(_ work: @escaping @Sendable () throws -> Void) async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    try await thread.run(work)
  }
}
