@preconcurrency import Dispatch

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Calls a handler when a file or a directory is changed, by any process: inotify, or kqueue on Apple's systems. Takes no processor
/// time while nothing changes.
package final class FileWatch: Sendable {
  /// The kinds of changes that are reported.
  package enum Kind: Sendable {
    /// Bytes are written to the file.
    case contents
    /// The file's times or names are changed, but not its contents.
    case attributes
    /// Files in the directory are created, written, renamed, moved in or out, or removed.
    case names
    /// Files in the directory are created, closed after writing, renamed, moved in or out, or removed, or the
    /// directory itself is moved.
    case directory
  }

  /// An event of a watch.
  package enum Event: Sendable {
    /// Something has changed. Contains the name in a directory, if the system provides it, and whether the
    /// file was created or written in place, rather than moved or removed.
    case change(name: [UInt8]?, isInPlace: Bool)
    /// Changes may have been missed, or the file is no longer watched because it has been removed.
    case interruption
  }

  #if canImport(Darwin)
    private let source: any DispatchSourceFileSystemObject

    /// - Throws: ``StorageError`` that names the path.
    package init(path: String, _ kind: Kind, _ handler: @escaping @Sendable (Event) -> Void) throws {
      let descriptor = open(path, O_EVTONLY | O_CLOEXEC)
      guard descriptor >= 0 else { throw StorageError.posix(errno, "Watching \(path) failed.") }
      let events: DispatchSource.FileSystemEvent =
        switch kind {
        case .contents: [.write, .extend, .delete, .rename]
        case .attributes: [.attrib, .link, .delete, .rename]
        case .names, .directory: [.write, .delete, .rename]
        }
      let source = DispatchSource.makeFileSystemObjectSource(
        fileDescriptor: descriptor, eventMask: events, queue: DispatchQueue(label: "Stockroom.FileWatch"))
      self.source = source
      source.setEventHandler {
        let isLost = !source.data.isDisjoint(with: [.delete, .rename])
        handler(isLost ? .interruption : .change(name: nil, isInPlace: false))
      }
      source.setCancelHandler { close(descriptor) }
      source.activate()
    }

    deinit { source.cancel() }

  #else
    private let id: Int
    private let descriptor: Int32

    /// - Throws: ``StorageError`` that names the path, with code `io` if the system's limit of watched files is reached.
    package init(path: String, _ kind: Kind, _ handler: @escaping @Sendable (Event) -> Void) throws {
      let events =
        switch kind {
        case .contents: IN_MODIFY
        case .attributes: IN_ATTRIB
        // A file that an engine has moved in may be closed later, if a child process briefly has a copy of the descriptor. So
        // this watches for writes to files, not for their closing.
        case .names: IN_MODIFY | IN_CREATE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE
        case .directory:
          IN_CLOSE_WRITE | IN_CREATE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE | IN_MOVE_SELF | IN_ONLYDIR
        }
      (id, descriptor) = try Inotify.shared.add(path, UInt32(events), handler)
    }

    deinit { Inotify.shared.remove(id) }

    /// The error for the `errno` with which the system has refused to watch a file.
    package static func refusal(_ number: Int32, path: String) -> StorageError {
      guard number == ENOSPC else { return .posix(number, "Watching \(path) failed.") }
      // Not `diskFull`, since this limit does not concern the disk.
      return StorageError(
        .io, "Watching \(path) failed: the system's limit of watched files is reached.",
        underlying: SystemError(number))
    }

    /// Whether both watch the same file.
    package func watchesSameFile(as other: FileWatch) -> Bool { descriptor == other.descriptor }

    /// Calls the handlers for all earlier events, and returns when they have returned. Must not be called by
    /// handlers.
    package static func deliverPending() { Inotify.shared.deliverPending() }
  #endif
}

#if !canImport(Darwin)
  /// The one instance of inotify that all watches of the process share, since the system limits the instances of each user. It is
  /// never closed, since the kernel counts an instance for some time after that.
  private final class Inotify: Sendable {
    private struct Watch {
      let descriptor: Int32
      let events: UInt32
      let handler: @Sendable (FileWatch.Event) -> Void
    }

    private struct State {
      var nextID = 0
      /// Several watches of one file have the same descriptor.
      var watches: [Int: Watch] = [:]
      var instance: (descriptor: Int32, source: any DispatchSourceRead)?
    }

    static let shared = Inotify()
    private let state = MutexProtected(State())
    private let queue = DispatchQueue(label: "Stockroom.FileWatch")

    func add(
      _ path: String, _ events: UInt32, _ handler: @escaping @Sendable (FileWatch.Event) -> Void
    ) throws -> (id: Int, descriptor: Int32) {
      try state.withLock { state in
        let instance = try state.instance?.descriptor ?? open(&state)
        let descriptor = inotify_add_watch(instance, path, events | UInt32(IN_MASK_ADD))
        guard descriptor >= 0 else { throw FileWatch.refusal(errno, path: path) }
        state.nextID += 1
        state.watches[state.nextID] = Watch(descriptor: descriptor, events: events, handler: handler)
        return (id: state.nextID, descriptor: descriptor)
      }
    }

    func remove(_ id: Int) {
      // Released outside the lock, since releasing a handler may run any code.
      let removed = state.withLock { state -> Watch? in
        guard let watch = state.watches.removeValue(forKey: id) else { return nil }
        if let instance = state.instance,
          !state.watches.values.contains(where: { $0.descriptor == watch.descriptor })
        {
          inotify_rm_watch(instance.descriptor, watch.descriptor)
        }
        return watch
      }
      withExtendedLifetime(removed) {}
    }

    private func open(_ state: inout State) throws -> Int32 {
      let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
      guard descriptor >= 0 else {
        throw StorageError.posix(errno, "Watching files failed: the system has no more instances of inotify.")
      }
      let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
      source.setEventHandler { [self] in readEvents(from: descriptor) }
      source.activate()
      state.instance = (descriptor, source)
      return descriptor
    }

    /// Delivers all earlier events, and returns when that is done.
    func deliverPending() {
      guard let instance = state.withLock({ $0.instance?.descriptor }) else { return }
      queue.sync { readEvents(from: instance) }
    }

    /// Call it on the queue.
    private func readEvents(from instance: Int32) {
      withUnsafeTemporaryAllocation(byteCount: 1 << 16, alignment: 8) { buffer in
        while true {
          let count = read(instance, buffer.baseAddress, buffer.count)
          guard count > 0 else { return }
          deliver(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
        }
      }
    }

    private func deliver(_ buffer: UnsafeRawBufferPointer) {
      var offset = 0
      let headerSize = MemoryLayout<inotify_event>.size
      while offset + headerSize <= buffer.count {
        let event = buffer.loadUnaligned(fromByteOffset: offset, as: inotify_event.self)
        let name = buffer[offset + headerSize..<offset + headerSize + Int(event.len)].prefix { $0 != 0 }
        offset += headerSize + Int(event.len)
        let isOverflow = event.mask & UInt32(IN_Q_OVERFLOW) != 0
        let isInterruption = isOverflow || event.mask & UInt32(IN_IGNORED) != 0
        let handlers = state.withLock { state in
          state.watches.values.filter {
            isOverflow || $0.descriptor == event.wd && (isInterruption || $0.events & event.mask != 0)
          }.map(\.handler)
        }
        let isInPlace = event.mask & UInt32(IN_MODIFY | IN_CREATE) != 0
        for handler in handlers {
          handler(
            isInterruption
              ? .interruption : .change(name: event.len == 0 ? nil : Array(name), isInPlace: isInPlace))
        }
      }
    }
  }
#endif
