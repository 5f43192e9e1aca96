#if !canImport(Darwin)
  @preconcurrency import Dispatch
  import StockroomCore

  /// Reports changes in a directory. While the directory does not exist, watches its nearest existing ancestor.
  final class DirectoryWatcher: Sendable {
    private struct State {
      var watch: FileWatch?
      /// Whether a change has been detected and not been reported yet.
      var isReporting = false
    }

    private let directory: String
    private let changed: @Sendable () -> Void
    private let state = MutexProtected(State())
    /// A separate queue, not the one on which all watches call their handlers, since `changed` may wait for another watch.
    private let queue = DispatchQueue(label: "StoredValue")

    /// Nil if the system's limit of inotify instances or watches is reached.
    init?(directory: String, _ changed: @escaping @Sendable () -> Void) {
      self.directory = directory
      self.changed = changed
      guard updateWatch() else { return nil }
    }

    private func noteChange() {
      let isReportedAlready = state.withLock { exchange(&$0.isReporting, with: true) }
      if isReportedAlready { return }
      queue.async { [weak self] in
        guard let self else { return }
        state.withLock { $0.isReporting = false }
        updateWatch()
        changed()
      }
    }

    /// Watches the directory, or its nearest existing ancestor.
    ///
    /// - Returns: Whether something is watched.
    @discardableResult
    private func updateWatch() -> Bool {
      var watch = state.withLock { $0.watch }
      // Repeated after each success, since the directory may have been created before the watch of its ancestor began.
      while let new = watchNearest() {
        if let watch, new.watchesSameFile(as: watch) { break }
        watch = new
      }
      state.withLock { $0.watch = watch }
      return watch != nil
    }

    private func watchNearest() -> FileWatch? {
      var path = directory[...]
      while true {
        // The parent is tried next, whatever the error. Without any watch, each use of the value still reads changes.
        let watch = try? FileWatch(path: path.isEmpty ? "/" : String(path), .directory) { [weak self] _ in
          self?.noteChange()
        }
        if watch != nil || path.isEmpty { return watch }
        path = path[..<(path.lastIndex(of: "/") ?? path.startIndex)]
      }
    }
  }
#endif
