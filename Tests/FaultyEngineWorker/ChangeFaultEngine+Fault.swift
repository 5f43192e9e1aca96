extension ChangeFaultEngine {
  /// A deliberate fault.
  package enum Fault: String, CaseIterable, Sendable {
    // Misses one kind of call
    case missesWrites, missesOverwrites, missesBatches, missesRemovals, missesBatchesOfRemovals
    case missesRemovalsOfAll, missesApplies, missesTransactions, missesRemoveAllInBatches
    case missesRemoveAllInTransactions, missesImports, missesRewrittenBatches, missesChangesOfOrigins
    case mixesOrigins
    case cancelsOutReplacements, cancelsOutRemovals
    case missesRemovalsOfApplies, missesRemovalsOfTransactions, missesEmptyingTransactions
    // Misses some changes
    case notifiesOnlyTheFirst, missesLongKeys, namesKeysWithoutCase, leavesItToOthers, knowsSubscribersEarly
    case announcesAFewKeys, stopsAfterErrors, givesUpOnSlowSubscribers, notifiesTheFirst64
    case missesLargeTransactions, missesTheNextAfterErrors, missesOldEntries
    case missesImportsOfTransactions, numbersTransactionsEarly, announcesTheFirstRun, forgetsWhatIsOld
    case dropsWhatIsUnreadWhenClosed, missesChangesWithoutDescriptors, missesChangesWithoutLog,
      stopsLookingAfterErrors
    case missesCancelledCalls, missesCancelledBatches, stopsAfterOverflows, asksForTheNewest,
      missesTransactionsWithRefusals
    case missesRewritesOfTransactions, hidesItsOwnNames, knowsSubscribersOfBodiesEarly
    case waitsForAPause, mergesRemovalsAway
    // Misses changes by others
    case followsFewEngines, followsOnlyItself, followsOnlyItsProcess, followsNoOtherAfterOwnWrites,
      missesUnusualKeysOfOthers
    case noticesSubscriptionsLate, announcesOthersOneLate, losesItsPlaceInNewLogs, receivesAHundredKeys
    case followsNobodyWhenReopened, staysOnRemovedFiles
    // Reports changes too early
    case announcesBeforeItWrites, announcesOthersEarly, announcesImportsEarly, announcesTransactionsEarly,
      announcesRemovalsEarly, announcesLargeBatchesEarly, listsKeysLate, notifiesOtherEnginesEarly
    // Reports too much
    case announcesReads, announcesVerification, announcesEmptyBatches, announcesEmptyImports,
      announcesRefusedWrites
    case announcesTransactionsThatRead, announcesTransactionsThatThrow, announcesOpenings, announcesNowAndThen
    case announcesOtherPlaces, announcesSubscriptions, announcesCancelledCalls, announcesThrownRemovalsOfAll
    case notifiesOthersOfThrownBodies, announcesOpeningsOfOtherProcesses
    // Uses too many resources
    case buffersWithoutBound, leaksDescriptorsPerSubscription, waitsForSubscribers
    // Ends wrongly
    case goesOnWhenClosed, subscribesWhenClosed, endsAllWithOneEngine, endsAllWithOneSubscriber
    // No faults
    case saysEverything, mergesForAWhile, skipsOneChange
  }
}

extension ChangeFaultEngine.Fault {
  /// Whether others can write while a body runs.
  var runsBodiesBesideOthers: Bool {
    [.numbersTransactionsEarly, .announcesTheFirstRun, .knowsSubscribersOfBodiesEarly].contains(self)
  }

  /// The kind of call that is not reported.
  var missedCall: ChangeFaultFeed.Call? {
    switch self {
    case .missesWrites: .write
    case .missesOverwrites: .overwrite
    case .missesBatches: .writeMany
    case .missesRemovals: .remove
    case .missesBatchesOfRemovals: .removeMany
    case .missesRemovalsOfAll: .removeAll
    case .missesApplies: .apply
    case .missesImports: .writeEntries
    case .missesTransactions: .transaction
    default: nil
    }
  }
}
