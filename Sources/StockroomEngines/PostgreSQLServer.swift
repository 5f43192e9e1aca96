import Foundation
import StockroomCore
import StockroomKitSupport

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A private PostgreSQL server in a directory, reached through a Unix socket there, for tests, comparisons
/// and benchmarks.
///
/// It stops when the process that started it ends, even if that process is killed.
public final class PostgreSQLServer: Sendable {
  /// How a server is stopped.
  public enum Ending: Sendable {
    /// Disconnects the clients and shuts down cleanly.
    case fast
    /// Aborts without a checkpoint, and recovers at the next start.
    case immediate
    /// Kills the main process. The sessions exit when they detect that.
    case killed

    fileprivate var signal: Int32 {
      switch self {
      case .fast: SIGINT
      case .immediate: SIGQUIT
      case .killed: SIGKILL
      }
    }
  }

  /// The server that the engines of this process share unless they use another database. It starts with the first such
  /// engine, and is stopped and removed when the process ends.
  public static let shared = PostgreSQLServer(
    directory: FileManager.default.temporaryDirectory.appending(
      // Short, because the path of a Unix socket is limited to about 100 bytes.
      path: "stockroom-server-\(UUID().uuidString.prefix(8))"),
    isTemporary: true)

  /// The directory of the socket, and of the data unless ``keepData(below:)`` has moved them.
  public let directory: URL
  let port: Int
  private let isTemporary: Bool
  /// The directory of the data if it is not ``directory``.
  private let dataDirectory = MutexProtected<URL?>(nil)
  private let settings: [String]
  private let accessRules: [String]
  /// The primary if this server is a standby.
  private let primary: PostgreSQLServer?
  private let running = MutexProtected<Running?>(nil)
  private let starting = MutexProtected<Task<Void, any Error>?>(nil)

  private struct Running: Sendable {
    let process: LineProcess
    let identifier: Int32
    /// Reads the server's output, so that the pipe never fills up.
    let reader: Task<Void, Never>
  }

  /// Creates a server without starting it.
  ///
  /// - Parameters:
  ///   - directory: Its path may have about 90 bytes, because it must leave room for the name of the socket.
  ///   - port: Part of the socket's name, and a TCP port if `listen_addresses` is among the settings.
  ///   - settings: Each in the form `name=value`.
  ///   - accessRules: Lines put first in `pg_hba.conf`. Other local connections are trusted.
  ///   - primary: A running server. This one becomes its standby.
  ///   - isTemporary: Whether the directory is removed when the server stops.
  public init(
    directory: URL, port: Int = 5432, settings: [String] = [], accessRules: [String] = [],
    standbyOf primary: PostgreSQLServer? = nil, isTemporary: Bool = false
  ) {
    self.primary = primary
    self.directory = directory
    self.port = port
    self.settings = settings
    self.accessRules = accessRules
    self.isTemporary = isTemporary
  }

  deinit { running.withLock { $0 }?.process.kill() }

  /// The data directory.
  public var data: URL { (dataDirectory.withLock { $0 } ?? directory).appending(path: "data") }

  /// The connection string of the superuser.
  public var connection: String { "host=\(directory.path) port=\(port) user=postgres dbname=postgres" }

  /// Starts the server unless it is running, after creating its data if they are missing. Returns once it accepts
  /// connections.
  ///
  /// - Throws: `StorageError` with code `unsupported` if no server is installed, or if this process runs as root and
  ///   there is no user `postgres`; `io` with the server's output if it does not start. `CocoaError` or `StorageError`
  ///   if the directory cannot be created.
  public func start() async throws {
    let task = starting.withLock { starting in
      let task = starting ?? Task { try await makeAndLaunch() }
      starting = task
      return task
    }
    do {
      try await task.value
    } catch {
      starting.withLock { $0 = nil }
      throw error
    }
  }

  /// Keeps the data in a new directory below `parent`, to use the disk of `parent`. Call it before the first
  /// start, and call ``discard()`` at the end.
  ///
  /// - Returns: False if the server's user may not enter `parent`; the data then stay beside the socket.
  /// - Throws: `CocoaError` or `StorageError` if the directory cannot be created.
  public func keepData(below parent: URL) async throws -> Bool {
    let place = parent.absoluteURL.appending(
      path: directory.lastPathComponent, directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
    do {
      try Self.giveToUser(place)
      if try await Self.userMayEnter(place) {
        dataDirectory.withLock { $0 = place }
        return true
      }
    } catch {
      // The directory is empty. An error of its removal must not hide the original one.
      try? FileManager.default.removeItem(at: place)
      throw error
    }
    try FileManager.default.removeItem(at: place)
    return false
  }

  /// Stops the server and removes its files.
  ///
  /// - Throws: `CocoaError` if a file cannot be removed.
  public func discard() async throws {
    await stop(.immediate)
    let other = dataDirectory.withLock { $0.take() }
    for place in [directory] + [other].compactMap(\.self)
    where FileManager.default.fileExists(atPath: place.path) {
      try FileManager.default.removeItem(at: place)
    }
  }

  private func makeAndLaunch() async throws {
    if FileManager.default.fileExists(atPath: directory.path) { return try await launch(makingData: false) }
    do {
      // A user who can reach the socket is the server's superuser.
      try FileManager.default.createDirectory(
        at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
      try Self.giveToUser(directory)
      try await launch(makingData: true)
    } catch {
      // An error of the removal must not hide why the server did not start.
      if isTemporary {
        try? FileManager.default.removeItem(at: data)
        try? FileManager.default.removeItem(at: directory)
      }
      throw error
    }
  }

  /// The shell commands that create the data, for ``launch(makingData:)``.
  private func commandsMakingData() throws -> [String] {
    if let primary {
      return [
        try Self.watched([
          "pg_basebackup", "--pgdata=\(data.path)", "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
          "--dbname=\(primary.connection) application_name=standby",
        ])
      ]
    }
    let access = data.appending(path: "pg_hba.conf").path
    let (old, new) = (access.quotedForShell, "\(access).new".quotedForShell)
    let rules = accessRules.map(\.quotedForShell).joined(separator: " ")
    return [
      try Self.watched([
        "initdb", "--pgdata", data.path, "--username=postgres", "--auth=trust", "--encoding=UTF8",
        "--locale=C", "--no-sync",
      ]),
      "{ printf '%s\\n' \(rules); cat \(old); } > \(new)", "mv \(new) \(old)",
    ]
  }

  /// A shell command that runs one of the server's programs, and stops it when this process ends.
  private static func watched(_ command: [String]) throws -> String {
    let words = [try program(command[0])] + command.dropFirst()
    return "watched TERM " + words.map(\.quotedForShell).joined(separator: " ")
  }

  /// The path of the socket.
  public var socket: String { directory.appending(path: ".s.PGSQL.\(port)").path }

  /// - Parameter makingData: Whether to create the data first.
  private func launch(makingData: Bool) async throws {
    // The pipe to `cat` closes when the server's last process exits, so no process is left once the shell has
    // ended.
    let steps = try (makingData ? commandsMakingData() : []) + [#"watched QUIT "$@" | cat"#]
    // The shell stops its program when its own standard input ends, which happens when this process ends. It sends the
    // signal repeatedly, because a program that has just been started ignores it. The shell ignores SIGPIPE, because
    // its output is not read any more by then.
    let ended = directory.appending(path: "ended").path
    let other = dataDirectory.withLock { $0 }
    let places = ([directory] + [other].compactMap(\.self)).map(\.path.quotedForShell)
    let removal = isTemporary ? "rm -rf \(places.joined(separator: " "))" : "rm '\(ended)'"
    let script = """
      exec 3<&0
      trap '' PIPE
      watched() {
        signal=$1
        shift
        "$@" 2>&1 & program=$!
        echo "program $program"
        (
          while read -r line; do :; done
          touch '\(ended)'
          while kill -$signal $program; do sleep 0.1; done
        ) <&3 2> /dev/null & watcher=$!
        wait $program
        status=$?
        kill -KILL $watcher 2> /dev/null
        return $status
      }
      \(steps.joined(separator: " && "))
      if [ -e '\(ended)' ]; then \(removal); fi
      """
    let arguments =
      [try Self.program("postgres"), "-D", data.path]
      // Dynamic shared memory in files of the data directory: a killed server leaves nothing in the system's
      // shared memory.
      + ([
        "port=\(port)", "listen_addresses=", "unix_socket_directories=\(directory.path)",
        "unix_socket_permissions=0700",
        "lc_messages=C",
        "dynamic_shared_memory_type=mmap", "max_connections=500",
      ] + settings)
      .flatMap { ["-c", $0] }
    let process = try LineProcess(Self.asUser(["/bin/sh", "-c", script, "sh"] + arguments))
    var lines: [String] = []
    var identifier: Int32?
    while let line = await process.nextLine().map({ String(decoding: $0, as: UTF8.self) }) {
      // The last program is the server.
      if let number = line.split(separator: " ").last, line.hasPrefix("program ") {
        identifier = Int32(number)
      }
      lines.append(line)
      if line.contains("ready to accept"), let identifier {
        let reader = Task { while await process.nextLine() != nil {} }
        return running.withLock { $0 = Running(process: process, identifier: identifier, reader: reader) }
      }
    }
    throw StorageError(.io, "PostgreSQL has not started: \(lines.suffix(8).joined(separator: " "))")
  }

  /// Stops the server. Returns once all its processes have exited.
  public func stop(_ ending: Ending = .fast) async {
    guard let running = running.withLock({ $0.take() }) else { return }
    starting.withLock { $0 = nil }
    kill(running.identifier, ending.signal)
    await running.process.waitUntilEnd()
    running.process.kill()
  }
}

extension String {
  /// The text quoted as one word of a shell command.
  fileprivate var quotedForShell: String { "'" + replacingScalar("'", with: #"'\''"#) + "'" }
}
