import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

/// Calls made while a store is busy.
@MainActor @Suite("The order of calls to a busy store", .timeLimit(.minutes(60))) struct CallOrderTests {
  private struct Refusal: Error, Equatable {}

  /// The outcome of a call.
  private enum Outcome: Equatable { case done, refused, cancelled, failed }

  private let base = MemoryStorageEngine()
  private let engine: FailingStorageEngine
  init() { engine = FailingStorageEngine(base) }

  /// Twelve calls, each made before the next. Some fail, and some are cancelled: two before they are made,
  /// and two while they wait, which is too late.
  private func makeCalls(of store: Store<SecondNote>) async -> [Task<Void, any Error>] {
    let (made, make) = AsyncStream<Void>.makeStream()
    let tasks = (0..<12).map { number in
      Task { @MainActor in
        make.yield()
        switch number % 6 {
        case 3: try await store.update("log") { _ in throw Refusal() }
        case 4: try await store.insert(SecondNote(id: "\(number)", text: ""))
        default: try await store.update("log") { $0.text += "\(number) " }
        }
      }
    }
    for number in [1, 7] { tasks[number].cancel() }
    for await _ in made.prefix(tasks.count) {}
    for number in [2, 8] { tasks[number].cancel() }
    return tasks
  }

  private func outcomes(of tasks: [Task<Void, any Error>]) async -> [Outcome] {
    var outcomes: [Outcome] = []
    for task in tasks {
      switch await task.result {
      case .success: outcomes.append(.done)
      case .failure(is Refusal): outcomes.append(.refused)
      case .failure(is CancellationError): outcomes.append(.cancelled)
      case .failure: outcomes.append(.failed)
      }
    }
    return outcomes
  }

  private let expected: [Outcome] = [
    .done, .cancelled, .done, .refused, .done, .done, .done, .cancelled, .done, .refused, .done, .done,
  ]

  @Test("Calls made during rewriting take effect in order, whatever the outcome of a call in between")
  func rewriting() async throws {
    // Three batches, because a batch ends after 1 MiB.
    let text = String(repeating: "x", count: 600_000)
    try await ObjectStorage<FirstNote>(storage: base)
      .store((0..<5).map { (key("large \($0)"), FirstNote(id: "large \($0)", text: text)) })
    let store = try await Store<SecondNote>(storage: engine)
    try await store.insert(SecondNote(id: "log", text: ""))
    engine.hold { $0.method == .withTransaction }
    store.startRewritingOldVersions()
    try await engine.waitForHeldCalls()
    let calls = await makeCalls(of: store)
    // Waiting calls proceed as well, in order.
    store.stopRewritingOldVersions()
    store.startRewritingOldVersions()
    engine.release()
    #expect(await outcomes(of: calls) == expected)
    #expect(store["log"]?.text == "0 2 5 6 8 11 " && store.items.suffix(2).map(\.id) == ["4", "10"])
    try await store.oldVersionsHaveBeenRewritten()
    #expect(Set(try await versions(in: base).values) == ["2"])
    #expect(try await Store<SecondNote>(storage: base).items == store.items)
  }

  @Test(
    "Calls made during an undo take effect in order, and the next undo is for the last of them")
  func undo() async throws {
    let store = try await Store<SecondNote>(storage: engine)
    try await store.insert(SecondNote(id: "log", text: ""))
    store.undoLimit = StoreUndoLimit(calls: 100)
    try await store.insert(SecondNote(id: "undone", text: ""))
    engine.hold { $0.method == .withTransaction }
    let undo = Task { try await store.undo() }
    try await engine.waitForHeldCalls()
    // The undo is already in progress, so this is too late.
    undo.cancel()
    let calls = await makeCalls(of: store)
    async let next = store.undo()
    engine.release()
    #expect(try await undo.value)
    #expect(await outcomes(of: calls) == expected)
    #expect(try await next)
    #expect(store["log"]?.text == "0 2 5 6 8 " && store.items.map(\.id) == ["log", "4", "10"])
    // Undoes the successful calls one after another.
    for text in ["0 2 5 6 8 ", "0 2 5 6 ", "0 2 5 ", "0 2 ", "0 2 ", "0 ", ""] {
      #expect(try await store.undo())
      #expect(store["log"]?.text == text)
    }
    #expect(try await store.undo() == false)
    #expect(try await Store<SecondNote>(storage: base).items == store.items)
  }

  @Test("Calls made during a load that fails take effect in order after the next load")
  func loading() async throws {
    try await Store<SecondNote>(storage: base).insert(SecondNote(id: "log", text: ""))
    engine.failCall { $0.method == .readAllEntries }
    engine.hold { $0.method == .readAllEntries }
    let store = Store<SecondNote>(loadingInBackground: engine)
    let waiting = Task { try await store.itemsHaveLoaded() }
    try await engine.waitForHeldCalls()
    let calls = await makeCalls(of: store)
    waiting.cancel()
    engine.release()
    #expect(await outcomes(of: calls) == expected)
    #expect(store["log"]?.text == "0 2 5 6 8 11 " && store.items.map(\.id) == ["log", "4", "10"])
    #expect(try await Store<SecondNote>(storage: base).items == store.items)
  }

  @Test(
    "Each call that waits for a failing load receives its error, and the next calls take effect in order")
  func failedLoad() async throws {
    try await Store<SecondNote>(storage: base).insert(SecondNote(id: "log", text: ""))
    engine.failEveryCall { $0.method == .readAllEntries }
    engine.hold { $0.method == .readAllEntries }
    let store = Store<SecondNote>(loadingInBackground: engine)
    try await engine.waitForHeldCalls()
    let failing = await makeCalls(of: store)
    engine.release()
    #expect(
      await outcomes(of: failing)
        == expected.map { $0 == .cancelled ? Outcome.cancelled : .failed })
    engine.clearFaults()
    #expect(await outcomes(of: makeCalls(of: store)) == expected)
    #expect(store["log"]?.text == "0 2 5 6 8 11 ")
  }
}
