import StockroomCore
import StockroomKitSupport

/// The outcome of each pending change at a power cut.
struct PowerCutState: Hashable, Sendable {
  /// The outcome of all other changes.
  var others: PersistenceOutcome
  var particular: [Int: PersistenceOutcome] = [:]

  func outcome(_ number: Int) -> PersistenceOutcome { particular[number] ?? others }

  static let nothing = PowerCutState(others: .missing)
  static let everything = PowerCutState(others: .whole)
}

/// The states to check, out of all possible states after a power cut. For n changes there are more than 2 to the power
/// of n.
struct PowerCutStates {
  /// How many of the latest changes are varied individually.
  private static let mostSingle = 24
  private static let mostSectors = 24
  private static let randomCount = 12

  private let disk: SimulatedDisk
  private let pending: [SimulatedDisk.Entry]
  private let recent: [SimulatedDisk.Entry]
  private let isAfterChange: Bool

  /// - Parameter isAfterChange: Whether the last event was a change. Then the states without it belong to the previous
  ///   point.
  init(_ disk: SimulatedDisk, isAfterChange: Bool) {
    self.disk = disk
    self.isAfterChange = isAfterChange
    pending = disk.pending
    recent = pending.suffix(Self.mostSingle).reversed()
  }

  /// All states, by kind, the simplest kinds first.
  func kinds(_ random: inout SeededRandom) -> [[PowerCutState]] {
    if pending.isEmpty { return [[.nothing]] }
    let all = [
      [.nothing], [.everything], oneLost, oneKept, beginnings, namesAndContents, torn(&random),
      (0..<Self.randomCount).map { _ in anything(&random) },
    ]
    guard isAfterChange, let last = pending.last?.number else { return all.filter { !$0.isEmpty } }
    return all.map { $0.filter { $0.outcome(last) != .missing } }.filter { !$0.isEmpty }
  }

  private var oneLost: [PowerCutState] {
    recent.map { PowerCutState(others: .whole, particular: [$0.number: .missing]) }
  }

  private var oneKept: [PowerCutState] {
    recent.map { entry in
      var state = PowerCutState(others: .missing, particular: [entry.number: .whole])
      for need in disk.requirements(of: entry.number) { state.particular[need] = .whole }
      return state
    }
  }

  /// All changes up to one of them, in the order in which they were made.
  private var beginnings: [PowerCutState] {
    recent.indices.dropFirst().map { index in
      var state = PowerCutState(others: .whole)
      for entry in recent[..<index] { state.particular[entry.number] = .missing }
      return state
    }
  }

  /// States in which names are durable before contents, as with delayed allocation, or contents before names; and
  /// states in which the changes of one file are lost, or are the only durable ones, or in which the names in one
  /// directory are lost.
  private var namesAndContents: [PowerCutState] {
    var states = [
      state { $0.change.isContents ? .missing : .whole },
      state { $0.change.isContents ? .lengthOnly : .whole },
      state { $0.change.file == nil ? .missing : .whole },
    ]
    let files = Set(recent.compactMap(\.change.file)).sorted()
    for file in files {
      states.append(state { $0.change.file == file ? .missing : .whole })
      states.append(state { $0.change.file == file && $0.change.isContents ? .lengthOnly : .whole })
      if files.count > 1 { states.append(state { $0.change.file == file ? .whole : .missing }) }
    }
    let directories = Set(recent.flatMap(\.change.names).map(\.directory)).sorted()
    if directories.count > 1 {
      for directory in directories {
        states.append(state { $0.change.names.contains { $0.directory == directory } ? .missing : .whole })
      }
    }
    return states
  }

  /// States with torn writes: the last write of several sectors, torn after each sector (after 24 random ones if there
  /// are more), with all other changes on the disk and with none; and each earlier write with only a random range of
  /// its sectors.
  private func torn(_ random: inout SeededRandom) -> [PowerCutState] {
    let writes = recent.filter { $0.sectorCount > 1 }
    guard let last = writes.first else { return [] }
    let count = last.sectorCount
    var cuts = Array(1..<count)
    if cuts.count > Self.mostSectors { cuts = Array(cuts.shuffled(using: &random).prefix(Self.mostSectors)) }
    var states: [PowerCutState] = []
    for cut in cuts {
      for sectors in [0..<cut, cut..<count] {
        states.append(PowerCutState(others: .whole, particular: [last.number: .sectors(sectors)]))
      }
      states.append(PowerCutState(others: .missing, particular: [last.number: .sectors(0..<cut)]))
    }
    for write in writes.dropFirst() {
      states.append(
        PowerCutState(others: .whole, particular: [write.number: write.randomSectors(&random)]))
    }
    return states
  }

  private func anything(_ random: inout SeededRandom) -> PowerCutState {
    var state = PowerCutState(others: .whole)
    // Mostly written, mostly missing, or half and half.
    let share = [2, 5, 8][random.next(upTo: 3)]
    for entry in pending {
      switch random.next(upTo: 10) {
      case ..<share: state.particular[entry.number] = .missing
      case 9 where entry.sectorCount > 1: state.particular[entry.number] = entry.randomSectors(&random)
      case 8 where entry.sectorCount > 0 && random.once(in: 3): state.particular[entry.number] = .lengthOnly
      default: break
      }
    }
    return state
  }

  private func state(_ outcome: (SimulatedDisk.Entry) -> PersistenceOutcome) -> PowerCutState {
    var state = PowerCutState(others: .whole)
    for entry in pending { state.particular[entry.number] = outcome(entry) }
    return state
  }
}

extension SimulatedDisk.Entry {
  /// How many sectors the change writes.
  fileprivate var sectorCount: Int {
    guard case .write(_, let offset, let bytes) = change else { return 0 }
    return PersistenceOutcome.sectorCount(ofWriteAt: offset, count: bytes.count)
  }

  fileprivate func randomSectors(_ random: inout SeededRandom) -> PersistenceOutcome {
    let first = random.next(upTo: sectorCount)
    return .sectors(first..<(first + 1 + random.next(upTo: sectorCount - first)))
  }
}
