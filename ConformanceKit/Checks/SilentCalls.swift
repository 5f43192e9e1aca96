#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Calls that change nothing, and therefore yield no element.
struct SilentCalls: Sendable {
  var needs: EngineCapabilities = []
  let body: @Sendable (EngineUnderTest) async throws -> Void
}

/// The engine may have changed something, so that it need not be silent.
struct MayHaveChanged: Error {}

/// Calls that concern subscriptions and tasks.
let silentCallsOfTasks: [(String, SilentCalls)] = [
  (
    "subscriptions",
    SilentCalls { engine in
      var unread: [StorageChanges] = []
      for _ in 0..<3 {
        // One stream is released at once, the loop over another is cancelled, and a third is not read.
        _ = try await engine.changes()
        let reading = ChangeCollector(try await engine.changes())
        await letOthersRun()
        // Another check covers that it ends.
        _ = await reading.cancel(within: .seconds(10))
        unread.append(try await engine.changes())
      }
      withExtendedLifetime(unread) {}
    }
  ),
  (
    "cancelled-calls",
    SilentCalls { engine in
      for method in ChangeMethod.all(engine.capabilities) {
        let changed = keys(3).map { (key: $0, data: data("cancelled")) }
        let isRefused = await isRefusedWhenCancelled { try await method.perform(changed, in: engine) }
        // An engine need not check whether its task has been cancelled (rule C4).
        if !isRefused { throw MayHaveChanged() }
      }
    }
  ),
]

/// Makes the call in a task that has been cancelled. Returns whether it threw `CancellationError`.
private func isRefusedWhenCancelled(_ call: @escaping @Sendable () async throws -> Void) async -> Bool {
  await withTaskGroup(of: Bool.self) { group in
    group.addTask { @concurrent in
      withUnsafeCurrentTask { $0?.cancel() }
      do {
        try await call()
        return false
      } catch {
        return ((error as? CallFailure)?.error ?? error) is CancellationError
      }
    }
    return await group.next() ?? false
  }
}

/// What bodies change before they throw.
let changesOfThrownBodies: [@Sendable (any StorageTransaction) throws -> Void] = [
  { try $0.write(data("v"), key: keys(3)[0]) },
  { try $0.remove(key: keys(3)[1]) },
  { try $0.removeAll() },
  { transaction in
    let past = Date(timeIntervalSince1970: 1_500_000_000)
    try transaction.writeEntry(
      StorageEntry(key: keys(3)[2], data: data("v"), createdAt: past, updatedAt: past))
  },
]
