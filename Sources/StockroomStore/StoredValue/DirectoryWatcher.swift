#if !canImport(Darwin)
  @preconcurrency import Dispatch
  import StockroomCore

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Musl)
    import Musl
  #endif

  /// Reports changes in a directory, by inotify. While the directory does not exist, watches its nearest existing ancestor.
  final class DirectoryWatcher: Sendable {
    private let source: any DispatchSourceRead

    /// Nil if the system's limit of inotify instances is reached.
    init?(directory: String, _ changed: @escaping @Sendable () -> Void) {
      let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
      guard descriptor >= 0 else { return nil }
      let watched = MutexProtected(Int32(-1))
      source = DispatchSource.makeReadSource(
        fileDescriptor: descriptor, queue: DispatchQueue(label: "StoredValue"))
      source.setEventHandler {
        Self.discardEvents(of: descriptor)
        watched.withLock { Self.watch(directory, with: descriptor, insteadOf: &$0) }
        changed()
      }
      source.setCancelHandler { close(descriptor) }
      watched.withLock { Self.watch(directory, with: descriptor, insteadOf: &$0) }
      source.activate()
    }

    deinit { source.cancel() }

    /// The events are not needed: each one makes the caller examine the files.
    private static func discardEvents(of descriptor: Int32) {
      var buffer = [UInt8](repeating: 0, count: 4096)
      while read(descriptor, &buffer, buffer.count) > 0 {}
    }

    /// Watches the directory, or its nearest existing ancestor, with the same descriptor.
    private static func watch(_ directory: String, with descriptor: Int32, insteadOf watched: inout Int32) {
      // Again after each success, since the directory may have been created before its ancestor was watched.
      while true {
        let new = watchNearest(to: directory, with: descriptor)
        if new == watched || new < 0 { return }
        if watched >= 0 { inotify_rm_watch(descriptor, watched) }
        watched = new
      }
    }

    private static func watchNearest(to directory: String, with descriptor: Int32) -> Int32 {
      let events =
        IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF
        | IN_ONLYDIR
      var path = directory[...]
      while true {
        let watch = inotify_add_watch(descriptor, path.isEmpty ? "/" : String(path), UInt32(events))
        if watch >= 0 || path.isEmpty { return watch }
        path = path[..<(path.lastIndex(of: "/") ?? path.startIndex)]
      }
    }
  }
#endif
