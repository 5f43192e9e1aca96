import ArgumentParser
import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// `stockroom watch`
struct WatchCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "watch",
    abstract: "Prints changes in a place as they happen, until Ctrl-C.",
    discussion: """
      A line is "key" and a key that was written or removed, or "everything", after which any key may have changed. The first line \
      is "everything", once the place is being watched. A program that reads again what each line names misses no change. In JSON a \
      line is {"key":"…"} or {"everything":true}.

      Changes of all programs are shown: on this machine or, with PostgreSQL, on any machine. Ctrl-C ends the command with status 0. If \
      a place on this machine is deleted, moved or replaced, the command ends with an error.

      Example:
        stockroom watch sqlite:notes | while read -r kind key; do echo "$key"; done
      """)

  @OptionGroup var placeOptions: PlaceOptions

  @Option(help: ArgumentHelp("Only keys that begin with this.", valueName: "text"))
  var prefix: String?

  @Option(help: "The format of the lines.")
  var format = DataFormat.text

  private struct Key: Encodable {
    let key: String
  }
  private struct Everything: Encodable {
    let everything = true
  }

  func run() async throws {
    do {
      try await watch()
    } catch is CancellationError where Task.isCancelled {
      // Cancelled before the first line was printed.
      throw EndedBySignal()
    }
  }

  private func watch() async throws {
    let place = try placeOptions.place
    let pipe = ClosedPipe()
    try await placeOptions.withEngine(for: .writing) { engine in
      guard engine.capabilities.isSuperset(of: [.changeFeed, .multiProcess]) else {
        throw StorageError(
          .unsupported,
          engine.capabilities.contains(.multiProcess)
            ? "An engine with these layers has no change feed."
            : "No other program can change a place of this engine while it is open here.")
      }
      let changes = try await engine.changes()
      try writeToStandardOutput(text(.everything))
      // The loop below, which waits for changes, would not notice that the reader of the pipe has closed it.
      pipe.whenClosed { Task { try? await engine.close() } }
      let loss = PlaceLoss()
      let watching = place.isPostgreSQL ? nil : Task { @concurrent in await loss.watch(engine) }
      defer { watching?.cancel() }
      for await change in changes { try writeToStandardOutput(text(change)) }
      if let error = loss.error { throw error }
    }
    if pipe.isClosed { throw Interrupted(signal: SIGPIPE) }
    if Task.isCancelled { throw EndedBySignal() }
    throw PlaceFailure(place: place, cause: StorageError(.io, "The place is no longer watched."))
  }

  private func text(_ change: StorageChange) throws -> String {
    switch change {
    case .everything: return format == .json ? try jsonLine(Everything()) : "everything\n"
    case .keys(let keys):
      let range = prefix.map(KeyRange.prefix) ?? .all
      return try keys.filter(range.contains).sorted().map {
        format == .json ? try jsonLine(Key(key: $0.value)) : "key \($0.value.escaped)\n"
      }.joined()
    }
  }
}

/// Whether a place on this machine has been deleted, moved or replaced. The change feed does not report that, and
/// reports nothing after it.
private final class PlaceLoss: Sendable {
  private let state = MutexProtected<StorageError?>(nil)

  /// The error that the engine has thrown because its place is lost (rule C6); nil until then.
  var error: StorageError? { state.withLock { $0 } }

  /// Looks up a key every 250 milliseconds, until the task is cancelled. Closes the engine once that throws `io`, which
  /// ends its change feed.
  func watch(_ engine: any StorageEngine) async {
    // `sleep` throws only if the task has been cancelled.
    while (try? await Task.sleep(for: .milliseconds(250))) != nil {
      do {
        _ = try await engine.keyExists(CacheKey(verbatim: "-"))
      } catch let error as StorageError where error.code == .io {
        state.withLock { $0 = error }
        try? await engine.close()
        return
      } catch {
        // Other errors do not mean that the place is lost.
      }
    }
  }
}

/// Whether the reader of standard output has closed the pipe, as `head` does.
private final class ClosedPipe: Sendable {
  private let state = MutexProtected(false)

  var isClosed: Bool { state.withLock { $0 } }

  /// Calls `body` once the pipe has been closed. Waits on a new thread, which may last as long as the process.
  func whenClosed(_ body: @escaping @Sendable () -> Void) {
    Thread.detachNewThread { [self] in
      // `poll` reports errors even if no events are requested, and a closed reading end is an error.
      var output = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
      while poll(&output, 1, -1) < 0, errno == EINTR {}
      let isClosed = output.revents & Int16(POLLERR | POLLHUP) != 0
      guard isClosed else { return }
      state.withLock { $0 = true }
      body()
    }
  }
}
