// The extent of a check, limited by its level and by a maximum duration.

extension CheckContext {
  /// The value for the level of the budget.
  func byLevel<Value>(quick: Value, standard: Value, exhaustive: Value) -> Value {
    switch budget.level {
    case .quick: quick
    case .standard: standard
    case .exhaustive: exhaustive
    }
  }

  /// The rounds of a check. For a slow engine they end earlier, which the report notes, except in an exhaustive run.
  func rounds(quick: Int, standard: Int, exhaustive: Int, of what: String) -> RoundLimit {
    RoundLimit(
      context: self, what: what, wanted: byLevel(quick: quick, standard: standard, exhaustive: exhaustive),
      share: byLevel(quick: .milliseconds(250), standard: .milliseconds(2_500), exhaustive: nil))
  }
}

/// The number of rounds of a check, and their maximum duration. A sequence of the numbers of the rounds, from 0.
struct RoundLimit: Sequence, Sendable {
  private let context: CheckContext
  private let what: String
  private let wanted: Int
  private let end: ContinuousClock.Instant?

  fileprivate init(context: CheckContext, what: String, wanted: Int, share: Duration?) {
    (self.context, self.what, self.wanted) = (context, what, wanted)
    end = share.map { ContinuousClock.now + $0 }
  }

  /// The numbers of one task's rounds when this many tasks share the rounds.
  func share(of task: Int, among taskCount: Int) -> some Sequence<Int> {
    sequence(first: task) { $0 + taskCount }.lazy.prefix { goesOn(after: $0) }
  }

  func makeIterator() -> some IteratorProtocol<Int> { share(of: 0, among: 1).makeIterator() }

  /// Whether there is another round after this many. Notes in the report if the time limit has expired.
  private func goesOn(after done: Int) -> Bool {
    if done >= wanted { return false }
    context.noteProgress()
    guard let end, done > 0, ContinuousClock.now > end else { return true }
    context.noteShortfall("\(done) of \(wanted) \(what)")
    return false
  }
}
