// The extent of a check: limited by its level, and by the time that it may take.

extension CheckContext {
  /// The value for the level of the budget.
  func byLevel<Value>(quick: Value, standard: Value, exhaustive: Value) -> Value {
    switch budget.level {
    case .quick: quick
    case .standard: standard
    case .exhaustive: exhaustive
    }
  }

  /// The rounds that a check makes. Those of an engine whose calls take long end earlier, as the report says, except in an
  /// exhaustive run.
  func rounds(quick: Int, standard: Int, exhaustive: Int, of what: String) -> RoundLimit {
    RoundLimit(
      context: self, what: what, wanted: byLevel(quick: quick, standard: standard, exhaustive: exhaustive),
      share: byLevel(quick: .milliseconds(250), standard: .milliseconds(2_500), exhaustive: nil))
  }
}

/// How many rounds a check makes, and for how long: the numbers of the rounds, from 0.
struct RoundLimit: Sequence, Sendable {
  private let context: CheckContext
  private let what: String
  private let wanted: Int
  private let end: ContinuousClock.Instant?

  fileprivate init(context: CheckContext, what: String, wanted: Int, share: Duration?) {
    (self.context, self.what, self.wanted) = (context, what, wanted)
    end = share.map { ContinuousClock.now + $0 }
  }

  /// The numbers that one of so many tasks has when they share the rounds.
  func share(of task: Int, among taskCount: Int) -> some Sequence<Int> {
    sequence(first: task) { $0 + taskCount }.lazy.prefix { goesOn(after: $0) }
  }

  func makeIterator() -> some IteratorProtocol<Int> { share(of: 0, among: 1).makeIterator() }

  /// Whether another round is to be made after so many. Notes in the report if there is no time for it.
  private func goesOn(after done: Int) -> Bool {
    if done >= wanted { return false }
    context.noteProgress()
    guard let end, done > 0, ContinuousClock.now > end else { return true }
    context.noteShortfall("\(done) of \(wanted) \(what)")
    return false
  }
}
