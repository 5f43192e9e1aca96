import Foundation
import Hummingbird
import NIOCore
import StockroomCore

/// The context of a request, with the connection that it arrived on.
struct NotesContext: RequestContext {
  var coreContext: CoreRequestContextStorage
  let channel: any Channel

  init(source: ApplicationRequestContextSource) {
    coreContext = .init(source: source)
    channel = source.channel
  }
}

/// Removes the body from the responses to `HEAD`.
///
/// Add it after `MetricsMiddleware`, which counts a request as active until the body of its response has been written:
/// a body that is removed outside of `MetricsMiddleware` is never written.
struct HeadWithoutBody: RouterMiddleware {
  func handle(
    _ request: Request, context: NotesContext,
    next: (Request, NotesContext) async throws -> Response
  ) async throws -> Response { try await next(request, context).answering(request) }
}

extension Response {
  /// The response, without the body if the request is a `HEAD`.
  fileprivate func answering(_ request: Request) -> Response {
    request.method == .head ? Response(status: status, headers: headers) : self
  }
}

/// Responds to errors with JSON and the corresponding HTTP status.
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

/// Rejects cross-site requests.
///
/// `Origin`, if present, must equal `Host`. `Host` must be a name of this server, which prevents DNS rebinding: the
/// origin of a page whose own name resolves to this server equals its `Host`.
struct SameOriginOnly: RouterMiddleware {
  /// The host names of this server in lower case, without a port.
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
    // Navigation by links on other sites is allowed.
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

/// Adds headers that forbid browsers to load anything from other servers, and to run scripts in notes.
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
  /// The value of a field that has no constant, by its name in lower case.
  fileprivate subscript(name: String) -> String? { first { $0.name.canonicalName == name }?.value }
}
