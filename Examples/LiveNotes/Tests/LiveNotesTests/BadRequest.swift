import Foundation
import Testing

/// A request that is invalid or forbidden, and the status of its response.
struct BadRequest: Sendable, CustomTestStringConvertible {
  let name: String
  let method: String
  let path: String
  var body: Data?
  var headers: [String: String] = [:]
  let status: Int
  var testDescription: String { name }

  private static func text(_ length: Int) -> Data {
    Data("{\"text\":\"\(String(repeating: "x", count: length))\"}".utf8)
  }
  private static let unknown = "/notes/\(UUID().uuidString)"
  private static let note = Data("{\"text\":\"Milk\"}".utf8)
  private static func json(_ text: String) -> Data { Data(text.utf8) }

  static let all: [BadRequest] = [
    .init(name: "half an object", method: "POST", path: "/notes", body: json("{\"te"), status: 400),
    .init(name: "no body", method: "POST", path: "/notes", body: Data(), status: 400),
    .init(
      name: "a number for a text", method: "POST", path: "/notes", body: json("{\"text\":7}"), status: 400),
    .init(name: "no UTF-8", method: "POST", path: "/notes", body: Data([0x7b, 0xff, 0xfe]), status: 400),
    .init(
      name: "arrays in arrays", method: "POST", path: "/notes",
      body: json(String(repeating: "[", count: 60_000)), status: 400),
    .init(name: "blanks", method: "POST", path: "/notes", body: json("{\"text\":\" \\n \"}"), status: 422),
    .init(name: "a long text", method: "POST", path: "/notes", body: text(10_001), status: 422),
    .init(name: "a long body", method: "POST", path: "/notes", body: text(70_000), status: 413),
    .init(
      name: "100 megabytes", method: "POST", path: "/notes", body: Data(repeating: 0x20, count: 100 << 20),
      status: 413),
    .init(
      name: "many tags", method: "POST", path: "/notes",
      body: json("{\"text\":\"x\",\"tags\":[\((0..<21).map { "\"\($0)\"" }.joined(separator: ","))]}"),
      status: 422),
    .init(
      name: "a form", method: "POST", path: "/notes", body: json("text=Milk"),
      headers: ["Content-Type": "application/x-www-form-urlencoded"], status: 415),
    .init(name: "an unknown note, read", method: "GET", path: unknown, status: 404),
    .init(
      name: "an unknown note, changed", method: "PATCH", path: unknown, body: json("{\"done\":true}"),
      status: 404),
    .init(name: "an unknown note, removed", method: "DELETE", path: unknown, status: 404),
    .init(name: "no identifier", method: "GET", path: "/notes/..%2f..%2fetc", status: 404),
    .init(name: "an unknown undo", method: "POST", path: "/undo/\(UUID().uuidString)", status: 410),
    .init(name: "an unknown path", method: "GET", path: "/passwd", status: 404),
    .init(name: "a path upwards", method: "GET", path: "/..%2f..%2fPackage.swift", status: 404),
    .init(name: "a wrong method", method: "PUT", path: "/notes", body: note, status: 405),
    .init(name: "a wrong method of a note", method: "POST", path: unknown, body: note, status: 405),
    .init(name: "a wrong method of the page", method: "DELETE", path: "/", status: 405),
    .init(name: "clearing what", method: "DELETE", path: "/notes", status: 400),
    .init(name: "an unknown panel", method: "GET", path: "/events?panel=other", status: 400),
    .init(
      name: "a foreign origin", method: "DELETE", path: "/notes?which=all",
      headers: ["Origin": "http://evil.example"], status: 403),
    .init(
      name: "no origin that has a name", method: "DELETE", path: "/notes?which=all",
      headers: ["Origin": "null"],
      status: 403),
    .init(
      name: "a foreign origin that reads", method: "GET", path: "/events",
      headers: ["Origin": "http://evil.example"], status: 403),
    .init(
      name: "a foreign site", method: "GET", path: "/notes", headers: ["Sec-Fetch-Site": "cross-site"],
      status: 403),
    .init(
      name: "a foreign name for this server", method: "GET", path: "/notes",
      headers: ["Host": "evil.example"],
      status: 421),
  ]
}
