import Foundation
import Hummingbird
import NIOCore

/// A file of the page, in memory.
struct PageFile: Sendable {
  let contentType: String
  let bytes: ByteBuffer
  /// Different each time the server starts, which is when the files are read.
  private static let tag = "\"\(UUID().uuidString)\""

  func response(to request: Request) -> Response {
    let headers: HTTPFields = [.contentType: contentType, .cacheControl: "no-cache", .eTag: Self.tag]
    if request.headers[.ifNoneMatch] == Self.tag { return Response(status: .notModified, headers: headers) }
    return Response(status: .ok, headers: headers, body: .init(byteBuffer: bytes))
  }
}

/// The files of the page, by path.
struct PageFiles: Sendable {
  let files: [String: PageFile]

  private static let contentTypes = [
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
  ]

  init() throws {
    var files: [String: PageFile] = [:]
    let folder = Bundle.module.bundleURL.appending(path: "Page", directoryHint: .isDirectory)
    for url in try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil) {
      guard let type = Self.contentTypes[url.pathExtension] else { continue }
      let data = try Data(contentsOf: url)
      let name = url.lastPathComponent
      files[name == "index.html" ? "/" : "/\(name)"] = PageFile(
        contentType: type, bytes: ByteBuffer(bytes: data))
    }
    self.files = files
  }
}
