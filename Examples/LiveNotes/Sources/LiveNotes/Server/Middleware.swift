import Foundation
import Hummingbird
import NIOCore
import StockroomCore

/// What is known about a request, and the connection that it came by.
struct NotesContext: RequestContext {
  var coreContext: CoreRequestContextStorage
  let channel: any Channel

  init(source: ApplicationRequestContextSource) {
    coreContext = .init(source: source)
    channel = source.channel
  }
}

/// Answers `HEAD` without a body, which nobody expects there.
///
/// It belongs inside `MetricsMiddleware`, which counts a request as under way until its body has been written: taken away outside,
/// the body never is.
struct HeadWithoutBody: RouterMiddleware {
  func handle(
    _ request: Request, context: NotesContext,
    next: (Request, NotesContext) async throws -> Response
  ) async throws -> Response { try await next(request, context).answering(request) }
}

extension Response {
  /// Without the body if the request is a `HEAD`.
  fileprivate func answering(_ request: Request) -> Response {
    request.method == .head ? Response(status: status, headers: headers) : self
  }
}

/// Answers errors as JSON, with the right status.
struct ErrorsAsJSON: RouterMiddleware {
  struct Body: Encodable {
    struct Details: Encodable {
      let code: String
      let message: String
    }
    let error: Details
  }

  func handle(
    _ request: Request, context: NotesContext,
    next: (Request, NotesContext) async throws -> Response
  ) async throws -> Response {
    do {
      return try await next(request, context)
    } catch {
      let (status, code, message, headers) = Self.describe(error)
      if status.code >= 500 {
        context.logger.error(
          "Request failed", metadata: ["error": "\(error)", "path": "\(request.uri.path)"])
      }
      var response = try Response.json(Body(error: .init(code: code, message: message)), status: status)
      response.headers.append(contentsOf: headers)
      return response.answering(request)
    }
  }

  private static func describe(_ error: any Error) -> (HTTPResponse.Status, String, String, HTTPFields) {
    switch error {
    case let error as InvalidNote:
      (.unprocessableContent, "invalidNote", error.reason, [:])
    case let error as HTTPError:
      (error.status, name(of: error.status), error.body ?? error.status.reasonPhrase, error.headers)
    case let error as any HTTPResponseError:
      (error.status, name(of: error.status), error.status.reasonPhrase, [:])
    case let error as StorageError:
      (status(of: error), error.code.name, "The notes could not be read or written: \(error.code.name).", [:])
    case is DecodingError:
      (.badRequest, "badRequest", "The body is not what is expected here.", [:])
    default:
      (.internalServerError, "internal", "Something went wrong here.", [:])
    }
  }

  private static func status(of error: StorageError) -> HTTPResponse.Status {
    switch error.code {
    case .unavailable, .outcomeUnknown, .locked, .conflict: .serviceUnavailable
    case .diskFull: HTTPResponse.Status(code: 507, reasonPhrase: "Insufficient Storage")
    default: .internalServerError
    }
  }

  /// "Not Found" as `notFound`.
  private static func name(of status: HTTPResponse.Status) -> String {
    let words = status.reasonPhrase.split(separator: " ")
    return words.enumerated().map { $0 == 0 ? $1.lowercased() : $1.capitalized }.joined()
  }
}

/// Refuses what other pages make a browser send.
///
/// `Origin` must be this server. `Host` must be an address of it too: a page elsewhere whose name suddenly leads here has no other
/// way to be found out.
struct SameOriginOnly: RouterMiddleware {
  /// The names by which this server is called, without the port.
  let hosts: Set<String>

  func handle(
    _ request: Request, context: NotesContext,
    next: (Request, NotesContext) async throws -> Response
  ) async throws -> Response {
    let host = request.head.authority ?? ""
    if !hosts.contains(Self.withoutPort(host)) {
      throw HTTPError(.misdirectedRequest, message: "This server is not \(host.prefix(100)).")
    }
    if let origin = request.headers[.origin], origin != "http://\(host)", origin != "https://\(host)" {
      throw HTTPError(.forbidden, message: "Pages of other origins may not use these notes.")
    }
    // A link on another site may lead here.
    if let site = request.headers["sec-fetch-site"], !["same-origin", "none"].contains(site),
      request.headers["sec-fetch-mode"] != "navigate"
    {
      throw HTTPError(.forbidden, message: "Pages of other sites may not use these notes.")
    }
    return try await next(request, context)
  }

  private static func withoutPort(_ host: String) -> String {
    guard let colon = host.lastIndex(of: ":"), host[host.index(after: colon)...].allSatisfy(\.isNumber)
    else { return host.lowercased() }
    return host[..<colon].lowercased()
  }
}

/// Tells browsers that nothing comes from elsewhere and no script from a note.
struct SecurityHeaders: RouterMiddleware {
  func handle(
    _ request: Request, context: NotesContext,
    next: (Request, NotesContext) async throws -> Response
  ) async throws -> Response {
    var response = try await next(request, context)
    response.headers[.contentSecurityPolicy] =
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
      + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    response.headers[.xContentTypeOptions] = "nosniff"
    response.headers[.crossOriginResourcePolicy] = "same-origin"
    return response
  }
}

extension HTTPFields {
  /// The value of a field that has no constant, by its name in small letters.
  fileprivate subscript(name: String) -> String? { first { $0.name.canonicalName == name }?.value }
}
