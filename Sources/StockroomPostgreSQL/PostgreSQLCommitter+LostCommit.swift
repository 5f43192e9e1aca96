import StockroomCore

/// Determines the outcome of a commit whose answer was lost, by claiming the row of this engine again on
/// another connection.
extension PostgreSQLCommitter {
  /// Whether the commit whose answer was lost has succeeded. If not, it never will.
  func isCommitted(
    until deadline: ContinuousClock.Instant, after cause: any Error,
    _ meanwhile: @escaping () throws -> Void
  ) throws -> Bool {
    let expected = state.withLock { $0.epoch } + 1
    do {
      _ = try connected(until: deadline, meanwhile)
      return state.withLock { $0.epoch } == expected
    } catch {
      unknownEpochs.withLock { _ = $0.insert(expected - 1) }
      // The commit is fenced off before this engine writes anything else.
      hub.send(.everything)
      throw StorageError(
        .outcomeUnknown,
        "The connection to \(connector.address) was lost in the middle of a commit, and it is not known yet whether it has taken effect.",
        underlying: cause)
    }
  }

  /// Like ``connected(until:_:)``, but marks errors as not caused by any single write.
  ///
  /// - Throws: ``FailedConnection``.
  func connectionForCommit(
    until deadline: ContinuousClock.Instant, _ meanwhile: @escaping () throws -> Void
  ) throws -> PostgreSQLConnection {
    do {
      return try connected(until: deadline, meanwhile)
    } catch {
      throw FailedConnection(underlying: error)
    }
  }

  /// Returns the connection. If it must be a new one, claims the row on it.
  func connected(
    until deadline: ContinuousClock.Instant, _ meanwhile: @escaping () throws -> Void
  ) throws -> PostgreSQLConnection {
    let (current, epoch) = state.withLock { ($0.connection, $0.epoch) }
    if let current, !connector.isOutdated(current), !current.hasEnded {
      current.meanwhile = meanwhile
      return current
    }
    drop()
    var failures = 0
    while true {
      let connection = try connector.connect(
        until: deadline, for: .writing, after: &failures, meanwhile: meanwhile)
      do {
        let results = try connection.run(
          [.init(.claim, writer.parameter, .number(epoch))]
            + (epoch == 0 ? [.init(.forgetOthers, writer.parameter)] : []),
          until: deadline)
        guard let claimed = try results.first?.number(0, 0) else {
          throw StorageError(.io, "\(connector.address) has not said what the epoch is.")
        }
        // No engine has made that many commits.
        guard (1..<Int64.max / 2).contains(claimed) else {
          throw StorageError(.corrupted, "The table of commits has the epoch \(claimed).")
        }
        // The next claim has the same result. Until a standby has this one, a failover could undo it, and with it the
        // outcome that it shows.
        guard !connection.hasGivenUpReplication else {
          throw StorageError(
            .unavailable,
            "\(connector.address) no longer waits for a standby to confirm a commit. Nothing has been written."
          )
        }
        state.withLock { ($0.connection, $0.existing, $0.epoch) = (connection, connection, claimed) }
        return connection
      } catch let failure as PostgreSQLFailure {
        guard failure.isConnectionLost || failure.isConcurrency, ContinuousClock.now < deadline else {
          throw error(failure)
        }
        failures += 1
      }
    }
  }

  func drop() { state.withLock { $0.connection = nil } }

  /// Lets the reading side count and release the connection that writes. It ends when the writing thread no longer uses
  /// it.
  var holder: PostgreSQLConnectionShare.Holder {
    .init(
      count: { [weak self] in self?.state.withLock { $0.existing == nil ? 0 : 1 } ?? 0 },
      release: { [weak self] in self?.drop() })
  }
}
