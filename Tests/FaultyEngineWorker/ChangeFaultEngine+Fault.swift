extension ChangeFaultEngine {
  /// A deliberate fault.
  package enum Fault: String, CaseIterable, Sendable {
    // Misses one kind of call
    case missesWrites, missesOverwrites, missesBatches, missesRemovals, missesBatchesOfRemovals
    case missesRemovalsOfAll, missesApplies, missesTransactions, missesRemoveAllInBatches
    case missesRemoveAllInTransactions, missesImports, missesRewrittenBatches, missesChangesOfOrigins
    case cancelsOutReplacements, cancelsOutRemovals
    case missesRemovalsOfApplies, missesRemovalsOfTransactions, missesEmptyingTransactions
    // Misses some changes
    case tellsOnlyTheFirst, missesLongKeys, namesKeysWithoutCase, leavesItToOthers, knowsSubscribersEarly
    case tellsOfAFewKeys, stopsAfterErrors, givesUpOnSlowSubscribers, tellsTheFirst64
    case missesLargeTransactions, missesTheNextAfterErrors, missesOldEntries
    case missesImportsOfTransactions, numbersTransactionsEarly, tellsOfTheFirstRun, forgetsWhatIsOld
    case dropsWhatIsUnreadWhenClosed, isDeafWithoutDescriptors, isDeafWithoutLog, stopsLookingAfterErrors
    case missesCancelledCalls, stopsAfterOverflows, asksForTheNewest, missesTransactionsWithRefusals
    case missesRewritesOfTransactions, hidesItsOwnNames, knowsSubscribersOfBodiesEarly
    case waitsForAPause, mergesRemovalsAway
    // Misses changes by others
    case hearsFewEngines, hearsOnlyItself, hearsOnlyItsProcess, hearsNoOtherAfterOwnWrites,
      missesUnusualKeysOfOthers
    case noticesSubscriptionsLate, tellsOfOthersOneLate, losesItsPlaceInNewLogs, hearsOfAHundredKeys
    case hearsNobodyWhenReopened, staysOnRemovedFiles
    // Reports changes too early
    case tellsBeforeItWrites, tellsOfOthersEarly, tellsOfImportsEarly, tellsOfTransactionsEarly,
      tellsOfRemovalsEarly, tellsOfLargeBatchesEarly, listsKeysLate, tellsOtherEnginesEarly
    // Reports too much
    case tellsOfReads, tellsOfVerification, tellsOfEmptyBatches, tellsOfEmptyImports, tellsOfRefusedWrites
    case tellsOfTransactionsThatRead, tellsOfTransactionsThatThrow, tellsOfOpenings, tellsNowAndThen
    case tellsOfOtherPlaces, tellsOfSubscriptions, tellsOfCancelledCalls, tellsOfThrownRemovalsOfAll
    case tellsOthersOfThrownBodies, tellsOfOpeningsOfOtherProcesses
    // Uses too many resources
    case buffersWithoutBound, leaksDescriptorsPerSubscription, waitsForSubscribers
    // Ends wrongly
    case goesOnWhenClosed, subscribesWhenClosed, endsAllWithOneEngine, endsAllWithOneSubscriber
    // No faults
    case saysEverything, mergesForAWhile, losesSightOnce
  }
}

extension ChangeFaultEngine.Fault {
  /// Whether others can write while a body runs.
  var runsBodiesBesideOthers: Bool {
    [.numbersTransactionsEarly, .tellsOfTheFirstRun, .knowsSubscribersOfBodiesEarly].contains(self)
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
