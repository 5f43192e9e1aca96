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

/// A PostgreSQL server of one's own in a directory, reached through a socket there: for tests, comparisons and benchmarks.
///
/// It ends with the process that has started it, whatever happens to that.
public final class PostgreSQLServer: Sendable {
  /// How a server is stopped.
  public enum Ending: Sendable {
    /// It ends its sessions, and puts everything in order.
    case fast
    /// It ends at once, and recovers when it is started again.
    case immediate
    /// The system ends it. Its sessions end when they see that.
    case killed

    fileprivate var signal: Int32 {
      switch self {
      case .fast: SIGINT
      case .immediate: SIGQUIT
      case .killed: SIGKILL
      }
    }
  }

  /// The server that the engines of this process share that need one and have no other. It is started with the first
  /// of them, and leaves nothing behind.
  public static let shared = PostgreSQLServer(
    directory: FileManager.default.temporaryDirectory.appending(
      // Short, since the path of a socket may have some 100 bytes.
      path: "stockroom-server-\(UUID().uuidString.prefix(8))"),
    isTemporary: true)

  /// Where the socket is, and the data unless ``keepData(below:)`` has put them elsewhere.
  public let directory: URL
  private let port: Int
  private let isTemporary: Bool
  /// What has the data in place of ``directory``.
  private let dataDirectory = MutexProtected<URL?>(nil)
  private let settings: [String]
  private let accessRules: [String]
  /// The server of which this one is a standby.
  private let primary: PostgreSQLServer?
  private let running = MutexProtected<Running?>(nil)
  private let starting = MutexProtected<Task<Void, any Error>?>(nil)

  private struct Running: Sendable {
    let process: LineProcess
    let identifier: Int32
    /// Reads what the server writes, so that it never waits for somebody to do so.
    let reader: Task<Void, Never>
  }

  /// The programs of an installed server, or nil if there is none.
  public static func installedPrograms() -> URL? {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
    let debian = "/usr/lib/postgresql"
    let versions = ((try? FileManager.default.contentsOfDirectory(atPath: debian)) ?? [])
      .compactMap { Int($0) }.sorted(by: >).map { "\(debian)/\($0)/bin" }
    return (versions + path.split(separator: ":").map(String.init)).first { folder in
      ["initdb", "postgres"].allSatisfy { FileManager.default.isExecutableFile(atPath: "\(folder)/\($0)") }
    }.map { URL(filePath: $0, directoryHint: .isDirectory) }
  }

  /// A server that is not started yet.
  ///
  /// - Parameters:
  ///   - directory: Its path must leave room for a socket, and so have some 90 bytes at most.
  ///   - port: Part of the name of the socket; a port of the machine too if `listen_addresses` is among the settings.
  ///   - settings: In the form `name=value`.
  ///   - accessRules: Lines that come first in `pg_hba.conf`. Otherwise everybody on this machine is trusted.
  ///   - primary: A server that runs, of which this one becomes a standby.
  ///   - isTemporary: Whether the directory is removed when the server ends.
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

  /// Where the data are.
  public var data: URL { (dataDirectory.withLock { $0 } ?? directory).appending(path: "data") }

  /// The connection string of the superuser.
  public var connection: String { "host=\(directory.path) port=\(port) user=postgres dbname=postgres" }

  /// Starts the server unless it is running, and makes its data before if there are none. Returns when it takes connections.
  ///
  /// - Throws: `StorageError` with code `unsupported` if no server is installed, `io` and what the server has said if it does not
  ///   start.
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

  /// Keeps the data in a new directory below this one, on the disk of which they belong. Call it before the first start, and
  /// ``discard()`` at the end.
  ///
  /// - Returns: False if the user that the server runs as may not enter this directory: the data stay with the socket.
  /// - Throws: `CocoaError` or `StorageError` if the new directory cannot be made.
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
      // It is empty. Why it cannot be used is what matters.
      try? FileManager.default.removeItem(at: place)
      throw error
    }
    try FileManager.default.removeItem(at: place)
    return false
  }

  /// Stops the server and removes what it has kept.
  ///
  /// - Throws: `CocoaError` if something cannot be removed.
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
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      try Self.giveToUser(directory)
      try await launch(makingData: true)
    } catch {
      // Whether or not that can be removed, why there is no server is what matters.
      if isTemporary {
        try? FileManager.default.removeItem(at: data)
        try? FileManager.default.removeItem(at: directory)
      }
      throw error
    }
  }

  /// The commands of a shell that make the data, for ``launch(makingData:)``.
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

  /// One of the server's programs, which is ended if nobody needs the server any more.
  private static func watched(_ command: [String]) throws -> String {
    let words = [try program(command[0])] + command.dropFirst()
    return "watched TERM " + words.map(\.quotedForShell).joined(separator: " ")
  }

  /// What a client connects to.
  public var socket: String { directory.appending(path: ".s.PGSQL.\(port)").path }

  /// Runs statements as the superuser.
  public func execute(_ statements: String) async throws {
    try await run([
      "psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--host=\(directory.path)", "--port=\(port)",
      "--username=postgres",
      "--dbname=postgres", "--command=\(statements)",
    ])
  }

  /// - Parameter makingData: Whether the data are made before.
  private func launch(makingData: Bool) async throws {
    // The server's last process ends the pipe, so that nothing of it is left once the shell has ended.
    let steps = try (makingData ? commandsMakingData() : []) + [#"watched QUIT "$@" | cat"#]
    // The shell ends what it runs when its own input ends, as it does with this process: again and again, since a signal is ignored by a
    // program that has just been started. Nobody reads what it says then.
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
      // What a server leaves that is killed is in its own directory, not in the system's shared memory.
      + ([
        "port=\(port)", "listen_addresses=", "unix_socket_directories=\(directory.path)", "lc_messages=C",
        "dynamic_shared_memory_type=mmap", "max_connections=500",
      ] + settings)
      .flatMap { ["-c", $0] }
    let process = try LineProcess(Self.asUser(["/bin/sh", "-c", script, "sh"] + arguments))
    var lines: [String] = []
    var identifier: Int32?
    while let line = await process.nextLine().map({ String(decoding: $0, as: UTF8.self) }) {
      // The last one is the server.
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

  /// Stops the server. Returns when all its processes have ended.
  public func stop(_ ending: Ending = .fast) async {
    guard let running = running.withLock({ $0.take() }) else { return }
    starting.withLock { $0 = nil }
    kill(running.identifier, ending.signal)
    await running.process.waitUntilEnd()
    running.process.kill()
  }

  /// Runs one of the server's programs.
  ///
  /// - Throws: `StorageError` with code `io` if it fails.
  public func run(_ command: [String]) async throws {
    let process = try LineProcess(Self.asUser([Self.program(command[0])] + command.dropFirst()))
    process.closeInput()
    guard await process.waitUntilEnd() == .exited(status: 0) else {
      throw StorageError(.io, "\(command[0]) has failed: \(process.stderrTail)")
    }
  }

  private static func program(_ name: String) throws -> String {
    guard let programs = installedPrograms() else {
      throw StorageError(.unsupported, "No PostgreSQL server is installed.")
    }
    return programs.appending(path: name).path
  }
}

extension String {
  /// The text as one word of a command line.
  fileprivate var quotedForShell: String { "'" + replacingScalar("'", with: #"'\''"#) + "'" }
}
