import Foundation
import Hummingbird
import NIOCore

extension Response {
  /// A response with a value as JSON.
  static func json(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
    Response(
      status: status, headers: [.contentType: "application/json", .cacheControl: "no-store"],
      body: .init(byteBuffer: ByteBuffer(bytes: try JSONEncoder().encode(value))))
  }
}

/// The routes: each path with its methods. Other standard methods, except CONNECT, are answered with 405.
struct Routes: Sendable {
  let notes: NotesController
  let favourites: FavouritesController
  let noteList: NoteList
  let panels: Panels
  let page: PageFiles
  let metrics: MetricsPage
  /// The maximum size of a request's body, in bytes.
  static let bodyLimit = 64 << 10
  /// The number of bytes of a larger body that are read and discarded before the connection is closed.
  static let patienceLimit = 256 << 20

  typealias Handler = @Sendable (Request, NotesContext) async throws -> Response

  func add(to router: Router<NotesContext>) {
    for (path, file) in page.files {
      add(path, to: router, [.get: { request, _ in file.response(to: request) }])
    }
    add("/notes", to: router, [.get: list, .post: create, .delete: clear])
    add("/notes/{id}", to: router, [.get: read, .patch: change, .delete: remove])
    add("/undo/{token}", to: router, [.post: undo])
    add("/events", to: router, [.get: events])
    add("/health", to: router, [.get: health])
    add("/metrics", to: router, [.get: { _, _ in metricsText() }])
  }

  private func add(
    _ path: String, to router: Router<NotesContext>, _ handlers: [HTTPRequest.Method: Handler]
  ) {
    var handlers = handlers
    // Not for streams, whose responses have no end.
    if path != "/events" { handlers[.head] = handlers[.get] }
    let (known, allowed) = (handlers, handlers.keys.map(\.rawValue).sorted().joined(separator: ", "))
    for method: HTTPRequest.Method in [.get, .head, .post, .put, .patch, .delete, .options, .trace] {
      router.on(RouterPath(path), method: method) { request, context -> Response in
        if let handler = known[method] { return try await handler(request, context) }
        throw HTTPError(
          .methodNotAllowed, headers: [.allow: allowed], message: "Only \(allowed) is allowed here.")
      }
    }
  }

  // MARK: Notes

  private struct Removal: Encodable {
    /// The token that undoes the removal; nil if there was nothing to remove.
    let undo: UUID?
    let removed: Int
  }

  private func list(_ request: Request, _ context: NotesContext) async throws -> Response {
    Response(
      status: .ok, headers: [.contentType: "application/json", .cacheControl: "no-store"],
      body: ResponseBody(byteBuffer: try await noteList.bytes()))
  }

  private func read(_ request: Request, _ context: NotesContext) async throws -> Response {
    let id = try identifier("id", context)
    return try .json(try found(await notes.$notes[id]))
  }

  private func create(_ request: Request, _ context: NotesContext) async throws -> Response {
    let draft = try await body(NoteDraft.self, of: request, context)
    let note = try await notes.add(draft)
    var response = try Response.json(note, status: .created)
    response.headers[.location] = "/notes/\(note.id)"
    return response
  }

  private func change(_ request: Request, _ context: NotesContext) async throws -> Response {
    let id = try identifier("id", context)
    let change = try await body(NoteChange.self, of: request, context)
    return try .json(try found(try await notes.change(id, change)))
  }

  private func remove(_ request: Request, _ context: NotesContext) async throws -> Response {
    let id = try identifier("id", context)
    return try .json(Removal(undo: try found(try await notes.remove(id)), removed: 1))
  }

  private func clear(_ request: Request, _ context: NotesContext) async throws -> Response {
    let which = request.uri.queryParameters["which"]
    guard which == "all" || which == "done" else {
      throw HTTPError(.badRequest, message: "Say which=done or which=all.")
    }
    let (token, count) = try await notes.clear(onlyDone: which == "done")
    return try .json(Removal(undo: token, removed: count))
  }

  private func undo(_ request: Request, _ context: NotesContext) async throws -> Response {
    let token = try identifier("token", context)
    guard let count = try await notes.undo(token) else {
      throw HTTPError(.gone, message: "This cannot be undone any more.")
    }
    return try .json(["restored": count])
  }

  // MARK: Streams

  private func events(_ request: Request, _ context: NotesContext) async throws -> Response {
    let names = request.uri.queryParameters.getAll("panel")
    let chosen = try Set(
      names.map { name in
        guard let panel = PanelName(rawValue: String(name)) else {
          throw HTTPError(.badRequest, message: "There is no panel of this name.")
        }
        return panel
      })
    if panels.feed.isFull {
      throw HTTPError(
        .serviceUnavailable, headers: [.retryAfter: "5"],
        message: "There are \(panels.feed.subscriberLimit) streams, and no more are allowed.")
    }
    let lastID =
      request.headers.first { $0.name.canonicalName == "last-event-id" }?.value
      ?? request.uri.queryParameters["after"].map(String.init)
    let stream = EventStream(
      panels: panels, chosen: chosen.isEmpty ? Set(PanelName.allCases) : chosen, lastEventID: lastID,
      channel: context.channel)
    return Response(
      status: .ok, headers: [.contentType: "text/event-stream", .cacheControl: "no-store"],
      body: ResponseBody { writer in try await stream.write(to: &writer) })
  }

  // MARK: Operation

  private struct Health: Encodable {
    let status: String
    let notes: Int
    let subscribers: Int
    let cutOff: Int
  }

  private func health(_ request: Request, _ context: NotesContext) async throws -> Response {
    let (state, count) = await MainActor.run { (notes.$notes.loadingState, notes.notes.count) }
    let isWell = if case .loaded = state { true } else { false }
    return try .json(
      Health(
        status: isWell ? "ok" : "notesNotLoaded", notes: count, subscribers: panels.feed.subscriberCount,
        cutOff: panels.feed.cutOffCount),
      status: isWell ? .ok : .serviceUnavailable)
  }

  private func metricsText() -> Response {
    let feed = panels.feed
    let own = """
      # TYPE livenotes_subscribers gauge
      livenotes_subscribers \(feed.subscriberCount)
      # TYPE livenotes_subscribers_cut_off counter
      livenotes_subscribers_cut_off \(feed.cutOffCount)
      # TYPE livenotes_messages counter
      livenotes_messages \(feed.last)

      """
    return Response(
      status: .ok, headers: [.contentType: "text/plain; version=0.0.4; charset=utf-8"],
      body: .init(byteBuffer: ByteBuffer(string: metrics.text + own)))
  }

  // MARK: Input

  private func identifier(_ name: String, _ context: NotesContext) throws -> UUID {
    try found(context.parameters.get(name).flatMap(UUID.init(uuidString:)))
  }

  private func found<Value>(_ value: Value?) throws -> Value {
    guard let value else { throw HTTPError(.notFound, message: "There is no such note.") }
    return value
  }

  private func body<Value: Decodable>(_ type: Value.Type, of request: Request, _ context: NotesContext)
    async throws -> Value
  {
    let kind = request.headers[.contentType]?.split(separator: ";").first?.trimmingCharacters(
      in: .whitespaces)
    guard kind?.lowercased() == "application/json" else {
      throw HTTPError(.unsupportedMediaType, message: "The body has to be application/json.")
    }
    var bytes = Data()
    var count = 0
    for try await part in request.body {
      count += part.readableBytes
      if count <= Self.bodyLimit { bytes += part.readableBytesView }
      // Up to a limit, the rest is read and discarded, so that the client receives the response.
      if count > Self.patienceLimit { context.channel.close(mode: .all, promise: nil) }
    }
    guard count <= Self.bodyLimit else {
      throw HTTPError(.contentTooLarge, message: "The body may have \(Self.bodyLimit) bytes.")
    }
    return try JSONDecoder().decode(type, from: bytes)
  }
}
