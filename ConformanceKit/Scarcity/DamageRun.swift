import Foundation
import StockroomCore

/// Damages copies of a closed store, one after the other, and has each opened and read: in a child process, which is
/// started anew when it has died, or in this one if there is no other.
struct DamageRun {
  /// Far more than it takes to read a few hundred kilobytes, on a machine that is busy with other things too.
  private let limit: Duration

  private let store: ClosedStore
  private let history: StoreHistory
  private var child: ChildProcess?
  private let hasChild: Bool
  private(set) var violations: [Violation] = []

  /// - Parameter mustHaveChild: Whether there is nothing to do without one.
  init(in context: CheckContext, history: StoreHistory, mustHaveChild: Bool = false) async throws {
    self.history = history
    limit = context.patience(atMost: .seconds(30))
    do {
      child = try context.startChild()
    } catch let skip as Skip {
      if mustHaveChild { throw skip }
    }
    hasChild = child != nil
    store = try await ClosedStore(in: context, history: history)
  }

  var files: [String] { store.files }

  /// Some of the files, spread over all of them.
  func files(atMost count: Int) -> [String] {
    (0..<min(count, files.count)).map { files[$0 * files.count / min(count, files.count)] }
  }

  func size(of file: String) -> Int {
    (try? Data(contentsOf: store.directory.appending(path: file)).count) ?? 0
  }

  /// One of endlessly many damages.
  func damage(number: Int, seed: UInt64) -> Damage {
    let sizes = Dictionary(uniqueKeysWithValues: files.map { ($0, size(of: $0)) })
    return Damage(number: number, seed: seed, store: store, sizes: sizes)
  }

  /// Convicts the engine if verify() finds damage where there is none.
  mutating func checkVerifyingUndamaged() async throws {
    let reading = DamagedReading(
      directory: try store.copy { _ in }, history: history, what: "of a store that is as it was", codes: [],
      mustBeRight: true, mustBeWhole: true, isVerified: true, mayTurnBack: false, mayBeEmpty: false,
      remedy: nil)
    try await check(reading)
  }

  /// Does the damage, has it judged and keeps the judgement. Tidies up.
  ///
  /// - Parameter isVerified: Whether verify() is called before anything is read, and has to find the damage.
  mutating func check(_ damage: Damage, isVerified: Bool = false) async throws {
    let copy = try store.copy { try damage.apply(in: $0, olderFiles: store.olderFiles) }
    defer { try? FileManager.default.removeItem(at: copy) }
    let mustBeRight =
      store.context.capabilities.contains(.detectsCorruption) && !(damage.mayEmpty && files.count == 1)
    let reading = DamagedReading(
      directory: copy, history: history, what: damage.description, codes: damage.codes,
      mustBeRight: mustBeRight, mustBeWhole: damage.isCut, isVerified: isVerified,
      mayTurnBack: damage.mayTurnBack, mayBeEmpty: damage.mayEmpty,
      remedy: .init(
        original: store.directory.appending(path: damage.file), damaged: copy.appending(path: damage.file)))
    do {
      try await check(reading)
    } catch let violation as Violation {
      violations.append(violation)
    } catch let failure as CallFailure {
      violations.append(Violation("\(damage), \(failure)"))
    } catch let hang as ChildHangs {
      child = nil
      violations.append(Violation("\(hang.step) had not come to an end after \(limit)"))
    }
  }

  private mutating func check(_ reading: DamagedReading) async throws {
    let context = store.context
    guard hasChild else {
      return try await reading.check(makeEngine: { try await context.openUnkept($0) }, note: { _ in })
    }
    let child = try self.child ?? context.startChild()
    self.child = nil
    try await context.check(reading, in: child, limit: limit)
    self.child = child
  }

  /// Convicts the engine if there is anything to convict it of, and lets the process go.
  func finish(_ what: String) throws {
    child?.kill()
    guard let first = violations.first else { return }
    let others = violations.count == 1 ? "" : " (the first of \(violations.count) violations\(what))"
    throw Violation(first.description + others, rule: first.rule)
  }
}
