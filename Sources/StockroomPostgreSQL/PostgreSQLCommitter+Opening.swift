import StockroomCore

extension PostgreSQLCommitter {
  /// Creates the tables of the namespace if they do not exist.
  ///
  /// - Throws: `StorageError`, with code `unsupported` if the schema has tables of another program.
  func open(until deadline: ContinuousClock.Instant, meanwhile: @escaping () throws -> Void) throws {
    let connection = try connector.connect(until: deadline, isPatient: false, meanwhile: meanwhile)
    do {
      let place = connector.place
      guard try !isThere(place, connection, until: deadline) else { return }
      guard connector.settings.access == .readWrite else {
        throw StorageError(
          .unsupported, "The schema \(place.schema) of \(connector.address) has no tables of Stockroom's.")
      }
      // Checks again, with a lock that no other engine holds while it creates the tables.
      _ = try connection.run([.init(.beginWriting), .init(.lockCreation)], until: deadline)
      if try isThere(place, connection, until: deadline) { return }
      let hasSchema = try look(place, connection, until: deadline).hasSchema
      var steps: [PostgreSQLConnection.Step] = hasSchema ? [] : [.init(.makeSchema)]
      steps += [
        .init(.makeEntries), .init(.storeValuesOutside), .init(.makeSequence), .init(.makeCommits),
        .init(.mark),
        .init(.commit),
      ]
      _ = try connection.run(steps, until: deadline)
    } catch let failure as PostgreSQLFailure {
      throw StorageError.postgreSQL(
        failure, "Creating the tables in the schema \(connector.place.schema) of \(connector.address) failed")
    }
  }

  private func look(
    _ place: PostgreSQLNamespace, _ connection: PostgreSQLConnection, until deadline: ContinuousClock.Instant
  ) throws -> (hasSchema: Bool, tables: Int, comment: String?) {
    guard let result = try connection.run([.init(.recognise, .text(place.name))], until: deadline).first,
      result.rowCount == 1
    else { return (false, 0, nil) }
    return (result.bytes(0, 0).first == 1, Int(try result.number(0, 1)), result.text(0, 2))
  }

  private func isThere(
    _ place: PostgreSQLNamespace, _ connection: PostgreSQLConnection, until deadline: ContinuousClock.Instant
  ) throws -> Bool {
    let (_, tables, comment) = try look(place, connection, until: deadline)
    if tables == 0 { return false }
    try place.recognise(comment: comment)
    return true
  }
}
