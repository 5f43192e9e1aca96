import StockroomCore
import StockroomKitSupport

/// Generates sequences from a seed.
struct CommandGenerator {
  private let profile: CommandProfile
  private let theme: CommandTheme
  private let keys: [CacheKey]
  private let hasTransactions: Bool
  private var random: SeededRandom
  private var numberOfValues = 0
  private var lastValues: [CacheKey: CommandValue] = [:]
  private var questions: [CommandQuery] = []

  /// The sequence for the seed.
  ///
  /// - Parameter capabilities: Those of the engine. Calls that require others are not generated.
  static func sequence(
    of profile: CommandProfile, for capabilities: EngineCapabilities, seed: UInt64
  ) -> [Command] {
    var generator = CommandGenerator(profile, capabilities, seed: seed)
    return generator.sequence()
  }

  private init(_ profile: CommandProfile, _ capabilities: EngineCapabilities, seed: UInt64) {
    self.profile = profile
    hasTransactions = capabilities.contains(.transactions)
    random = SeededRandom(scrambling: seed)
    theme = random.pick(
      [.fewKeys: 4, .similarKeys: 4, .fewValues: 2, .manyKeys: 1, .largeValues: 1], otherwise: .fewKeys)
    keys = CommandKeys.some(for: theme, &random)
  }

  private mutating func sequence() -> [Command] {
    let lengths = theme == .largeValues ? [8, 16] : theme == .fewValues ? [12, 25] : [12, 25, 50, 150]
    let count = random.pick(lengths) ?? 20
    var operations = (0..<count).map { _ in operation(random.pick(profile.calls, otherwise: .askAnything)) }
    // At the end everything is read, by every method of this kind of sequence.
    for method in profile.listingMethods { operations.append(.ask(question(method))) }
    operations += keys.prefix(8).map { .ask(.read($0)) }
    return operations
  }

  private mutating func operation(_ call: CommandProfile.Call) -> Command {
    switch call {
    case .write: return .write(entry(invalidOnceIn: 30))
    case .writeMany:
      let count = batchCount()
      let odds = oddsOfInvalidKey(count)
      return .writeMany((0..<count).map { _ in entry(invalidOnceIn: odds) })
    case .writeEntries:
      let count = batchCount()
      let odds = oddsOfInvalidKey(count)
      return .writeEntries((0..<count).map { _ in datedEntry(invalidOnceIn: odds) })
    case .remove: return .remove(key(invalidOnceIn: 30))
    case .removeMany: return .removeMany(someKeys())
    case .removeAll: return .removeAll
    case .apply:
      let count = batchCount()
      let odds = oddsOfInvalidKey(count)
      return .apply((0..<count).map { _ in step(invalidOnceIn: odds) })
    case .transaction:
      if !hasTransactions { return operation(.apply) }
      let count = batchCount() + 1
      let odds = oddsOfInvalidKey(count)
      let steps = (0..<count).map { _ in bodyStep(invalidOnceIn: odds) }
      return .transaction(steps, throwing: random.once(in: 8))
    case .ask(let method): return .ask(question(method))
    case .askAnything: return .ask(anyQuestion())
    case .reopen: return .reopen(closing: true)
    case .drop: return .reopen(closing: false)
    case .wait: return .wait
    }
  }

  /// Now and then repeats an earlier read, because an engine may cache its result.
  private mutating func anyQuestion() -> CommandQuery {
    if random.once(in: 3), let asked = random.pick(Array(questions.suffix(4))) { return asked }
    let question = question(random.pick(ReadMethod.allCases) ?? .read)
    questions.append(question)
    return question
  }

  private mutating func question(_ method: ReadMethod) -> CommandQuery {
    switch method {
    case .read: .read(key(invalidOnceIn: 30))
    case .readMany: .readMany(someKeys())
    case .readDataAndKeys: .readDataAndKeys(someKeys())
    case .readEntries: .readEntries(someKeys())
    case .readAllData: .readAllData
    case .readAllDataAndKeys: .readAllDataAndKeys
    case .readAllEntries: .readAllEntries
    case .keyExists: .keyExists(key(invalidOnceIn: 30))
    case .keysExist: .keysExist(someKeys())
    case .keyCount: .keyCount
    case .allKeys: .allKeys
    case .createdAt: .createdAt(key(invalidOnceIn: 30))
    case .updatedAt: .updatedAt(key(invalidOnceIn: 30))
    case .scan: .scan(range(), limit: limit())
    }
  }
}

// MARK: - Arguments

extension CommandGenerator {
  private mutating func key(invalidOnceIn odds: Int) -> CacheKey {
    let isInvalid = random.once(in: odds)
    return random.pick(isInvalid ? CommandKeys.invalid : keys) ?? CacheKey(verbatim: "a")
  }

  private mutating func entry(invalidOnceIn odds: Int) -> CommandEntry {
    let key = key(invalidOnceIn: odds)
    // Now and then writes the present value, because an engine may skip such a write.
    if let last = lastValues[key], random.once(in: 12) { return CommandEntry(key: key, value: last) }
    let value = value()
    lastValues[key] = value
    return CommandEntry(key: key, value: value)
  }

  /// Dated in the past or, now and then, in the future, as if by the clock of another machine.
  private mutating func datedEntry(invalidOnceIn odds: Int) -> DatedEntry {
    let created = random.next(upTo: 1_000)
    let updated = random.once(in: 6) ? 300_000 : created + random.next(upTo: 100)
    return DatedEntry(entry: entry(invalidOnceIn: odds), createdAt: created, updatedAt: updated)
  }

  private mutating func step(invalidOnceIn odds: Int) -> CommandStep {
    switch random.next(upTo: 20) {
    case 0: .removeAll
    case 1...6: .remove(key(invalidOnceIn: odds))
    default: .write(entry(invalidOnceIn: odds))
    }
  }

  private mutating func bodyStep(invalidOnceIn odds: Int) -> BodyStep {
    switch random.next(upTo: 15) {
    case 0...1: .ask(.read(key(invalidOnceIn: odds)))
    case 2: .ask(.readMany((0..<3).map { _ in key(invalidOnceIn: odds) }))
    case 3: .ask(.keyExists(key(invalidOnceIn: odds)))
    case 4: .ask(.keyCount)
    case 5: .ask(.allKeys)
    case 6: .ask(.scan(range(invalidOnceIn: odds), limit: limit()))
    case 7: .change(.writeEntry(datedEntry(invalidOnceIn: odds)))
    default: .change(step(invalidOnceIn: odds))
    }
  }

  private mutating func batchCount() -> Int {
    random.pick([0: 2, 1: 6, 2: 8, 3: 8, 5: 6, 9: 3, 40: 1], otherwise: 1)
  }

  /// Chosen so that one batch in twelve has an invalid key, regardless of the length of the batch.
  private mutating func oddsOfInvalidKey(_ count: Int) -> Int {
    random.once(in: 12) ? max(1, count) : .max
  }

  private mutating func someKeys() -> [CacheKey] {
    let count = random.once(in: 80) ? 1_200 : batchCount()
    let odds = oddsOfInvalidKey(count)
    return (0..<count).map { _ in key(invalidOnceIn: odds) }
  }

  private mutating func value() -> CommandValue {
    if theme == .fewValues { return random.pick(Self.fewValues) ?? Self.fewValues[0] }
    numberOfValues += 1
    let number = numberOfValues
    if theme == .largeValues, random.once(in: 3) {
      let edge = random.pick([65_536: 4, 131_072: 2, 1 << 20: 3], otherwise: 65_536)
      return CommandValue(number, size: edge + (random.pick([-1, 0, 1, 5_000]) ?? 0))
    }
    switch random.next(upTo: 40) {
    case 0..<5: return CommandValue(number, size: 0)
    case 5..<11: return CommandValue(number, size: 1 + random.next(upTo: 64))
    case 11..<13: return CommandValue(number, size: random.next(upTo: 4_096))
    case 13:
      // The sizes of pages and of buffers, and the sizes next to them.
      let edge = random.pick([128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384]) ?? 4_096
      return CommandValue(number, size: edge - 1 + random.next(upTo: 3))
    default: return CommandValue(number)
    }
  }

  /// Short values, values that fill pages, and two that differ only in the middle.
  private static let fewValues = [
    CommandValue(1), CommandValue(2, size: 0), CommandValue(3, size: 6_000), CommandValue(4, size: 40_000),
    CommandValue(4, size: 40_000, differsInTheMiddle: true),
  ]

  private mutating func range(invalidOnceIn odds: Int = 30) -> KeyRange {
    var range = KeyRange.all
    if random.once(in: 2) {
      let scalars = Array((random.pick(keys)?.value ?? "").unicodeScalars)
      var prefix = String.UnicodeScalarView()
      prefix.append(contentsOf: scalars.prefix(random.next(upTo: scalars.count + 1)))
      range.prefix = String(prefix)
    }
    if random.once(in: 2) { range.after = key(invalidOnceIn: odds) }
    if random.once(in: 3) { range.upTo = key(invalidOnceIn: odds) }
    return range
  }

  private mutating func limit() -> Int? {
    random.pick([nil: 8, 1: 4, 2: 4, 3: 2, 10: 2, 0: 1, -1: 1, .max: 1], otherwise: nil)
  }
}

extension CommandProfile {
  /// The methods of this kind of sequence that list every entry exactly once.
  fileprivate var listingMethods: [ReadMethod] {
    let all: [ReadMethod] = [.readAllData, .readAllDataAndKeys, .readAllEntries, .keyCount, .allKeys, .scan]
    return all.filter { method in calls.contains { $0.key == .ask(method) || $0.key == .askAnything } }
  }
}
