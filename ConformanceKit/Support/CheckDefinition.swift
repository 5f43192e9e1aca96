import StockroomCore

/// The definition of a check, independent of an engine: a rule, an identifier, an expectation and the steps.
struct CheckDefinition: Sendable {
  typealias Body = @Sendable (CheckContext) async throws -> Void

  let rule: ContractRule
  let id: String
  /// A clause that completes the sentence "Expected: …".
  let expectation: String
  /// The capabilities that an engine must claim for the check to apply.
  let needs: EngineCapabilities
  /// Whether the check requires a worker process.
  let needsWorker: Bool
  /// Whether the check reads or changes the files of a place, or sets the clock. It does not apply to an engine with a
  /// server, whose entries are elsewhere.
  private(set) var isOfFiles: Bool
  /// Whether the check kills the engine's server. No other check may use the server meanwhile.
  let killsServer: Bool
  /// The lowest level at which the check runs.
  let level: ConformanceBudget.Level
  let body: Body

  init(
    _ rule: ContractRule, _ id: String, _ expectation: String, needs: EngineCapabilities = [],
    needsWorker: Bool = false, isOfFiles: Bool = false, killsServer: Bool = false,
    from level: ConformanceBudget.Level = .quick,
    body: @escaping Body
  ) {
    self.rule = rule
    self.id = id
    self.expectation = expectation
    self.needs = needs
    self.needsWorker = needsWorker
    self.isOfFiles = isOfFiles
    self.killsServer = killsServer
    self.level = level
    self.body = body
  }

  /// Whether the check applies to an engine that claims these capabilities.
  func applies(to capabilities: EngineCapabilities) -> Bool {
    capabilities.isSuperset(of: needs) && !(isOfFiles && capabilities.contains(.networked))
  }

  /// Whether the check acts on the network between engine and server.
  var actsOnNetwork: Bool { id.hasPrefix("network.") }

  /// All checks, in the order of the contract.
  static let all: [CheckDefinition] = {
    let checks =
      [
        keyChecks, keyEdgeChecks, valueChecks, valueEdgeChecks, writeChecks, manyEntriesChecks,
        timestampChecks,
        batchChecks, entryChecks, atomicityChecks, readChecks, agreementChecks, scanChecks, scanEdgeChecks,
        orderChecks,
        removalChecks, modelBasedChecks, capabilityChecks, concurrencyChecks, linearizabilityChecks,
        cancellationChecks,
        transactionChecks, transactionAnomalyChecks, bodyListChecks, longBodyChecks, transactionReadChecks,
        transactionTimeChecks, transactionBodyChecks, swallowedErrorChecks, transactionBlockingChecks,
        changeFeedChecks, changeReadingChecks, changeSharingChecks, changeSilenceChecks, subscriberChecks,
        listingChecks, cooperationChecks, verificationChecks, closingChecks, callsAtCloseChecks,
        suspensionChecks,
        openingCostChecks,
        storeConcurrencyChecks, storeFailureChecks,
        storeChainChecks, storeOrderChecks, storeEventChecks, storeDecodingChecks, storeCostChecks,
        storeIdentifierChecks, storeFollowingChecks, killChecks, multiProcessChecks,
        sizeChecks, batchSizeChecks, byteSizeChecks, fewValueChecks, sizeVisibilityChecks,
        sizeReopeningChecks,
        storeSizeChecks, reservedNameChecks,
        wayChecks,
        longLifeChecks, repetitionChecks, crowdChecks, cancelledCrowdChecks, sharedReadChecks,
        lateEffectChecks, fairnessChecks,
        sharedPlaceChecks, stoppedProcessChecks, networkChecks,
      ].flatMap { $0 } + checksOfFiles
    return ContractRule.allCases.flatMap { rule in checks.filter { $0.rule == rule } }
  }()
}

typealias Check = CheckDefinition

extension CheckDefinition {
  private static var checksOfFiles: [CheckDefinition] {
    [
      clockChecks, placeChecks, placeReturnChecks, placeBodyChecks, openingChecks, privacyChecks,
      plantedFileChecks, fullDiskChecks, faultChecks, refusalChecks,
      corruptionChecks, powerCutChecks, systemFaultChecks, pathChecks,
    ].flatMap { $0 }.map { check in
      var check = check
      check.isOfFiles = true
      return check
    }
  }
}

/// Builds a list of checks from consecutive expressions.
@resultBuilder
enum CheckList {
  static func buildExpression(_ check: CheckDefinition) -> [CheckDefinition] { [check] }
  static func buildExpression(_ checks: [CheckDefinition]) -> [CheckDefinition] { checks }
  static func buildBlock(_ checks: [CheckDefinition]...) -> [CheckDefinition] { checks.flatMap { $0 } }
  static func buildArray(_ checks: [[CheckDefinition]]) -> [CheckDefinition] { checks.flatMap { $0 } }
}
