import ArgumentParser
import CoreMetrics
import Foundation
import Hummingbird
import struct HummingbirdCore.MaximumAvailableConnections
import Logging
import NIOCore
import ServiceLifecycle
import Stockroom

@main
struct LiveNotes: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "LiveNotes", abstract: "Notes that are updated live in every open window.",
    discussion: """
      Several servers may use one place, except with memory and leveldb. Their pages show the changes of all of them.
      """)

  enum Engine: String, ExpressibleByArgument, CaseIterable {
    case memory, files, sqlite, lmdb, leveldb, postgresql
  }

  @Option(help: "The engine that stores the notes. (default: sqlite)") var engine: Engine?
  @Option(help: "The directory of the notes. (default: LiveNotes in the user's directory for data)")
  var directory: String?
  @Option(
    help: "The database of the notes, as libpq accepts it. Keep the password in PGPASSWORD or ~/.pgpass.")
  var postgresql: String?
  @Option(help: "The address to listen at. Browsers of other machines also need --allowed-host.")
  var host = "127.0.0.1"
  @Option(help: "The port to listen at; 0 for any that is free.") var port = 8080
  @Option(
    name: .customLong("allowed-host"),
    help: "Another host name or address under which browsers may call this server; repeat it for more.")
  var allowedHosts: [String] = []
  @Option(help: "How many streams of events there may be at the same time.") var streams = 1_000
  @Option(
    help:
      "How many seconds a request may take to arrive, and then its answer to be read. Streams have no such limit."
  )
  var timeLimit = 60
  @Option(help: "The least important lines to log: trace, debug, info, notice, warning, error or critical.")
  var logLevel = Logger.Level.notice

  func validate() throws {
    if engine == .postgresql, postgresql == nil {
      throw ValidationError("--engine postgresql needs --postgresql, the database.")
    }
    if let engine, engine != .postgresql, postgresql != nil {
      throw ValidationError("Either --engine \(engine.rawValue) or --postgresql.")
    }
    if directory != nil, engine == .memory || engine == .postgresql || postgresql != nil {
      throw ValidationError("Only engines that keep files have a --directory.")
    }
    guard (1...100_000).contains(streams) else { throw ValidationError("From 1 to 100000 streams.") }
    guard (1...86_400).contains(timeLimit) else { throw ValidationError("From 1 to 86400 seconds.") }
    guard (0...65_535).contains(port) else { throw ValidationError("A port is from 0 to 65535.") }
  }

  private var place: NotePlace {
    if let postgresql { return .postgreSQL(postgresql) }
    let directory =
      directory.map { FileManager.Directory(url: URL(filePath: $0, directoryHint: .isDirectory)) }
      ?? .defaultStorageDirectory(appendingPath: "LiveNotes")
    return switch engine ?? .sqlite {
    case .memory, .postgresql: .memory
    case .files: .files(directory)
    case .sqlite: .sqlite(directory)
    case .lmdb: .lmdb(directory)
    case .leveldb: .levelDB(directory)
    }
  }

  /// The number of connections that are allowed besides those of the streams.
  private static let otherConnections = 200

  @MainActor
  func run() async throws {
    var logger = Logger(label: "LiveNotes", factory: { StreamLogHandler.standardError(label: $0) })
    logger.logLevel = logLevel
    let metrics = MetricsPage()
    MetricsSystem.bootstrap(metrics)

    let store = try await NoteStore(opening: place)
    let notes = NotesController(store: store.notes)
    let favourites = FavouritesController(store: store.notes)
    let panels = Panels(notes, favourites, feed: EventFeed(subscriberLimit: streams))

    let router = Router(context: NotesContext.self)
    router.add(middleware: LogRequestsMiddleware(.info))
    router.add(middleware: SecurityHeaders())
    router.add(middleware: ErrorsAsJSON())
    router.add(middleware: MetricsMiddleware())
    router.add(middleware: HeadWithoutBody())
    router.add(middleware: SameOriginOnly(hosts: hosts))
    Routes(
      notes: notes, favourites: favourites, noteList: NoteList(notes), panels: panels, page: try PageFiles(),
      metrics: metrics
    ).add(to: router)

    let (host, isIPv6) = (host, host.contains(":"))
    let timeLimit = TimeAmount.seconds(Int64(timeLimit))
    let app = Application(
      router: router,
      // Disconnects clients that stop in the middle of a request, and slow ones.
      server: .http1(
        configuration: .init(
          additionalChannelHandlers: [TransferTimeLimit(timeLimit)], idleTimeout: .seconds(30))),
      configuration: .init(
        address: .hostname(host, port: port), serverName: "LiveNotes",
        // More than the streams, so that a stream beyond the limit is answered with 503. Further connections wait to be
        // accepted.
        availableConnectionsDelegate: MaximumAvailableConnections(streams + Self.otherConnections)),
      services: [PanelService(panels: panels)],
      onServerRunning: { channel in
        let port = channel.localAddress?.port ?? 0
        print("LiveNotes is at http://\(isIPv6 ? "[\(host)]" : host):\(port)/")
        fflush(nil)
      },
      logger: logger)
    let ending: Result<Void, any Error>
    var services = ServiceGroupConfiguration(
      services: [app], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
    services.maximumGracefulShutdownDuration = .seconds(10)
    do { ending = .success(try await ServiceGroup(configuration: services).run()) } catch {
      ending = .failure(error)
    }
    // Acknowledged changes are stored already; this releases the files and locks.
    try await store.close()
    try ending.get()
    logger.notice("Stopped")
  }

  /// The host names under which requests are accepted: those of the loopback interface, `--host` and `--allowed-host`.
  private var hosts: Set<String> {
    let names = ["localhost", "127.0.0.1", "::1", host] + allowedHosts
    // Browsers write an IPv6 address in brackets.
    return Set((names + names.map { "[\($0)]" }).map { $0.lowercased() })
  }
}

extension Logger.Level: @retroactive ExpressibleByArgument {}

/// Publishes the changes of the panels while the server runs.
struct PanelService: Service {
  let panels: Panels
  /// A subscriber is disconnected if one write to it takes longer.
  private static let timeout = Duration.seconds(20)

  func run() async throws {
    do {
      try await cancelWhenGracefulShutdown {
        try await withThrowingTaskGroup { group in
          group.addTask { try await panels.run() }
          group.addTask {
            while true {
              try await Task.sleep(for: .seconds(5))
              panels.feed.cutOffStalled(for: Self.timeout)
              panels.feed.beat()
            }
          }
          try await group.waitForAll()
        }
      }
    } catch is CancellationError {
      // The server is being stopped.
    }
  }
}
