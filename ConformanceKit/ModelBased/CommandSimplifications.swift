import StockroomCore

extension Command {
  /// Calls that do less, the simplest first.
  var simpler: [Command] {
    switch self {
    case .writeMany(let entries):
      let single = entries.count == 1 ? entries.map { Command.write($0) } : []
      return single + entries.shorter.map { .writeMany($0) }
    case .writeEntries(let entries):
      return [.writeMany(entries.map(\.entry))] + entries.shorter.map { .writeEntries($0) }
    case .removeMany(let keys):
      let single = keys.count == 1 ? keys.map { Command.remove($0) } : []
      return single + keys.shorter.map { .removeMany($0) }
    case .apply(let steps):
      let single = steps.count == 1 ? steps.compactMap(Command.init) : []
      return single + steps.shorter.map { .apply($0) }
    case .transaction(let steps, let isThrowing):
      let isBatch = !isThrowing && steps.allSatisfy { $0.change?.operation != nil }
      let batch = isBatch ? [Command.apply(steps.compactMap(\.change))] : []
      let changesNothing = !isThrowing && steps.allSatisfy { $0.change == nil }
      let questions = changesNothing ? steps.compactMap(\.question).map { Command.ask($0) } : []
      return questions + batch + steps.shorter.map { .transaction($0, throwing: isThrowing) }
        + (isThrowing ? [.transaction(steps, throwing: false)] : [])
    case .ask(let question): return question.simpler.map { .ask($0) }
    case .reopen(let closing): return closing ? [] : [.reopen(closing: true)]
    case .write, .remove, .removeAll, .wait: return []
    }
  }

  /// Nil for a step that is no call by itself.
  private init?(_ step: CommandStep) {
    switch step {
    case .write(let entry): self = .write(entry)
    case .writeEntry: return nil
    case .remove(let key): self = .remove(key)
    case .removeAll: self = .removeAll
    }
  }

  /// The values that the call writes.
  var values: [CommandValue] {
    var steps = steps ?? []
    if case .transaction(let body, _) = self { steps = body.compactMap(\.change) }
    return steps.compactMap { step in
      switch step {
      case .write(let entry): entry.value
      case .writeEntry(let dated): dated.entry.value
      case .remove, .removeAll: nil
      }
    }
  }

  /// The call with another value at this index of ``values``.
  func replacingValue(at place: Int, by value: CommandValue) -> Command {
    switch self {
    case .write(let entry): return .write(.init(key: entry.key, value: value))
    case .writeMany(var entries):
      entries[place].value = value
      return .writeMany(entries)
    case .writeEntries(var entries):
      entries[place].entry.value = value
      return .writeEntries(entries)
    case .apply(var steps):
      let writes = steps.indices.filter { if case .write = steps[$0] { true } else { false } }
      guard case .write(let entry) = steps[writes[place]] else { return self }
      steps[writes[place]] = .write(.init(key: entry.key, value: value))
      return .apply(steps)
    case .transaction(var steps, let isThrowing):
      let writes = steps.indices.filter { !Command.transaction([steps[$0]], throwing: false).values.isEmpty }
      switch steps[writes[place]] {
      case .change(.write(let entry)):
        steps[writes[place]] = .change(.write(.init(key: entry.key, value: value)))
      case .change(.writeEntry(var dated)):
        dated.entry.value = value
        steps[writes[place]] = .change(.writeEntry(dated))
      default: return self
      }
      return .transaction(steps, throwing: isThrowing)
    case .remove, .removeMany, .removeAll, .ask, .reopen, .wait: return self
    }
  }
}

extension CommandQuery {
  /// Simpler reads, the simplest first.
  fileprivate var simpler: [CommandQuery] {
    switch self {
    case .readMany(let keys): return keys.shorter.map { .readMany($0) }
    case .readDataAndKeys(let keys): return keys.shorter.map { .readDataAndKeys($0) }
    case .readEntries(let keys): return keys.shorter.map { .readEntries($0) }
    case .keysExist(let keys): return keys.shorter.map { .keysExist($0) }
    case .scan(let range, let limit):
      var simpler: [CommandQuery] = []
      if limit != nil { simpler.append(.scan(range, limit: nil)) }
      for part in [\KeyRange.after, \.upTo] where range[keyPath: part] != nil {
        var wider = range
        wider[keyPath: part] = nil
        simpler.append(.scan(wider, limit: limit))
      }
      if let prefix = range.prefix {
        var wider = range
        wider.prefix = nil
        simpler.append(.scan(wider, limit: limit))
        if prefix.unicodeScalars.count > 1 {
          wider.prefix = String(String.UnicodeScalarView(prefix.unicodeScalars.dropLast()))
          simpler.append(.scan(wider, limit: limit))
        }
      }
      return simpler
    default: return []
    }
  }
}

extension Array {
  /// The array without a half, without a quarter, … and without each of its elements, unless there are very many.
  fileprivate var shorter: [[Element]] {
    if isEmpty { return [] }
    var shorter: [[Element]] = []
    var size = Swift.max(1, count / 2)
    while size >= Swift.max(1, count / 64) {
      for start in stride(from: 0, to: count, by: size) {
        shorter.append(Array(self[..<start]) + Array(self[Swift.min(count, start + size)...]))
      }
      size /= 2
    }
    return shorter
  }
}

extension CacheKey {
  /// Keys that are easier to read, the easiest first.
  var simpler: [CacheKey] {
    let letters = "abcdefgh".map { CacheKey(verbatim: String($0)) }
    if letters.contains(self) { return letters.filter { $0 < self } }
    if !isValid { return value.isEmpty ? [] : [CacheKey(verbatim: "")] }
    let scalars = Array(value.unicodeScalars)
    var simpler = letters
    var size = scalars.count / 2
    while size > 0 {
      simpler.append(CacheKey(scalars.dropLast(size)))
      simpler.append(CacheKey(scalars.dropFirst(size)))
      size /= 2
    }
    return simpler.filter { $0.isValid }
  }

  /// The length of the longest run of a repeated character.
  var longestRun: Int { runs.map(\.count).max() ?? 0 }

  /// The key with runs of repeated characters shortened to this length.
  func limitingRuns(to limit: Int) -> CacheKey {
    // A key that is too long has to stay too long.
    isValid ? CacheKey(runs.flatMap { Array(repeating: $0.scalar, count: min($0.count, limit)) }) : self
  }

  /// The characters, each with its number of consecutive repetitions.
  var runs: [(scalar: Unicode.Scalar, count: Int)] {
    var runs: [(scalar: Unicode.Scalar, count: Int)] = []
    for scalar in value.unicodeScalars {
      if let last = runs.last, last.scalar == scalar {
        runs[runs.count - 1].count += 1
      } else {
        runs.append((scalar, 1))
      }
    }
    return runs
  }

  private init(_ scalars: some Sequence<Unicode.Scalar>) {
    var text = String.UnicodeScalarView()
    text.append(contentsOf: scalars)
    self.init(verbatim: String(text))
  }
}
