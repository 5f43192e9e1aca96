#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// System calls that fail during a call: rule F4.

extension CheckDefinition {
  @CheckList static var refusalChecks: [CheckDefinition] {
    Check(
      .f4, "refused.immutable-file",
      "when a file cannot be changed, a call succeeds, or throws and has no effect, now or later; all "
        + "entries can be read, and the engine can be used", needs: .persistent
    ) { context in
      let store = try await ClosedStore(in: context)
      let count = store.files.count
      for index in 0..<min(8, count) {
        let file = store.files[index * count / min(8, count)]
        let copy = try store.copy { _ in }
        context.addTeardown { try? System.setImmutable(false, copy.appending(path: file)) }
        try await context.check(RefusedCalls(context, place: copy, refusal: .immutable(file)))
      }
      if try System.canWriteImmutableFiles(in: context.root) {
        throw Skip(
          reason: "Immutable files can be written here while they are open, so not every call was refused.")
      }
    }
    Check(
      .f4, "refused.read-only-directory",
      "when no file can be created or removed, a call succeeds, or throws and has no effect, now or later; "
        + "all entries can be read, and the engine can be used", needs: .persistent,
      needsWorker: System.isSuperuser
    ) { context in
      let store = try await ClosedStore(in: context)
      let copy = try store.copy { if System.isSuperuser { try System.giveToNobody($0) } }
      context.addTeardown { try? System.setPermissions(of: copy, directories: 0o755, files: 0o644) }
      try await context.check(RefusedCalls(context, place: copy, refusal: .readOnlyDirectories))
    }
  }
}
