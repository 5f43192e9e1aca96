#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Changes of a shared place that follow each other without a read in between: rules C2 and C3.

/// Has the first engine make a change with each method right after a change by the second one, before it has read
/// anything. An engine that applies the change to a cached copy undoes the change of the other one, or overlooks it.
func checkChangesWithoutReads(of sharers: Sharers, _ context: CheckContext) async throws {
  try await checkReplacements(by: sharers, context)
  var answers = ExpectedAnswers()
  for method in ChangeMethod.all(context.capabilities) {
    context.noteProgress()
    let theirs = keys(2, prefix: "theirs before \(method.rawValue) ")
    let own = key("own by \(method.rawValue)")
    let before: [StorageOperation] = [.removeAll] + theirs.map { .write(data("theirs"), key: $0) }
    // A key that the second engine has written, and one that it has not.
    let changes: [StorageOperation] =
      switch method {
      case .removeAll: [.removeAll]
      case .remove, .removeMany: [.remove(key: theirs[0]), .remove(key: own)]
      default: [.write(data("own"), key: theirs[0]), .write(data("own"), key: own)]
      }
    try await sharers.perform(before, bySecond: true, by: nil)
    try await sharers.perform(changes, bySecond: false, by: method)
    // The keys of the previous round are still requested, to check that they have not come back.
    answers.absent = []
    answers.apply(before + changes)
    try await expectAnswers(
      answers, in: sharers, first: 0, changedBySecond: false,
      "\(method.call) right after a change", noting: context.progress)
  }
}

/// Has the second engine remove entries and write them again before the first one reads anything. An engine that counts
/// the versions of each entry, or of all entries, begins again.
private func checkReplacements(by sharers: Sharers, _ context: CheckContext) async throws {
  let replaced = keys(2, prefix: "replaced-")
  func writes(_ number: Int) -> [StorageOperation] {
    replaced.map { .write(data("value \(number)"), key: $0) }
  }
  let removals = replaced.map { StorageOperation.remove(key: $0) }
  let removalOfAll: [StorageOperation] = [.removeAll]
  let calls: [[[StorageOperation]]] = [
    [removalOfAll, writes(0)], [removals + writes(1)], [removals, writes(2)],
    [removalOfAll + writes(3)], [removalOfAll, writes(4)],
  ]
  var answers = ExpectedAnswers()
  for (number, calls) in calls.enumerated() {
    context.noteProgress()
    for operations in calls {
      try await sharers.perform(operations, bySecond: true, by: nil)
      answers.apply(operations)
    }
    try await expectAnswers(
      answers, in: sharers, first: number, changedBySecond: true,
      "a replacement of all entries in \(calls.count == 1 ? "one call" : "two calls")",
      noting: context.progress)
  }
}

/// Fails unless all sharers return these results. Reads first through those that have not made the change.
func expectAnswers(
  _ answers: ExpectedAnswers, in sharers: Sharers, first: Int, changedBySecond bySecond: Bool,
  _ what: String, noting progress: CheckProgress
) async throws {
  do {
    try await sharers.verify(answers, first: first, inSecond: !bySecond, noting: progress)
    try await sharers.verify(answers, first: first, inSecond: bySecond, noting: progress)
    try await sharers.expectAgreement()
  } catch let violation as Violation {
    throw Violation("after \(what) by another, \(violation.description)")
  }
}
