#if canImport(Darwin)
  import Foundation

  extension Store {
    /// Registers each further call of this store with an undo manager, so that the system's own commands undo and redo it.
    ///
    /// ```swift
    /// tasks.undoLimit = StoreUndoLimit(calls: 50)
    /// tasks.registerUndo(with: undoManager) { error in alert = error }
    /// ```
    ///
    /// The undo manager's actions start ``undo()`` and ``redo()``, which are asynchronous. Do not call those
    /// two yourself. Only recorded calls are registered, so set ``undoLimit`` first. After a failure, no
    /// earlier call of this store can be undone. The undo manager is not retained; nil ends the registration.
    ///
    /// - Parameter onFailure: Receives the error that an undo or a redo has thrown.
    public func registerUndo(
      with undoManager: UndoManager?, onFailure: @escaping @MainActor (any Error) -> Void
    ) {
      guard let undoManager else {
        undoRegistration = nil
        return
      }
      undoRegistration = UndoRegistration(undoManager, onFailure)
    }

    /// Registers the opposite action, as an undo manager expects from its actions, and starts the action.
    fileprivate func perform(_ direction: UndoHistory.Direction) {
      let registration = undoRegistration
      registration?.register(direction == .undo ? .redo : .undo, of: self)
      Task {
        do {
          _ = direction == .undo ? try await undo() : try await redo()
        } catch {
          registration?.fail(of: self, error)
        }
      }
    }
  }

  /// The undo manager of a store.
  @MainActor final class UndoRegistration {
    private weak var undoManager: UndoManager?
    private let onFailure: @MainActor (any Error) -> Void

    init(_ undoManager: UndoManager, _ onFailure: @escaping @MainActor (any Error) -> Void) {
      (self.undoManager, self.onFailure) = (undoManager, onFailure)
    }

    /// Makes the undo manager perform a direction next.
    func register<Item>(_ direction: UndoHistory.Direction, of store: Store<Item>) {
      undoManager?.registerUndo(withTarget: store) { store in
        // An undo manager calls its actions on the thread that uses it: the main thread.
        MainActor.assumeIsolated { store.perform(direction) }
      }
    }

    /// Removes all actions and records of the store, since the histories of the undo manager and of the store may differ now.
    func fail<Item>(of store: Store<Item>, _ error: any Error) {
      undoManager?.removeAllActions(withTarget: store)
      store.changeHistory { $0.clear() }
      onFailure(error)
    }
  }
#endif
