import Foundation
import Hummingbird
import NIOCore

/// A file of the page, in memory.
struct PageFile: Sendable {
  let contentType: String
  let bytes: ByteBuffer
  /// Changes whenever the file does.
  let tag: String

  func response(to request: Request) -> Response {
    let headers: HTTPFields = [.contentType: contentType, .cacheControl: "no-cache", .eTag: tag]
    if request.headers[.ifNoneMatch] == tag { return Response(status: .notModified, headers: headers) }
    return Response(status: .ok, headers: headers, body: .init(byteBuffer: bytes))
  }
}

/// The page and what it consists of, by path.
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
      // FNV-1a: nobody gains anything by two files of one tag.
      let hash = data.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
      let name = url.lastPathComponent
      files[name == "index.html" ? "/" : "/\(name)"] = PageFile(
        contentType: type, bytes: ByteBuffer(bytes: data), tag: "\"\(String(hash, radix: 16))\"")
    }
    self.files = files
  }
}
