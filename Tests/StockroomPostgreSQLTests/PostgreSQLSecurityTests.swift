import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite("PostgreSQL: TLS", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLSecurityTests {
  /// A certificate with its key, signed by itself.
  private func makeCertificate(_ name: String, in place: URL) async throws -> (certificate: URL, key: URL) {
    let (certificate, key) = (place.appending(path: "\(name).crt"), place.appending(path: "\(name).key"))
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/openssl")
    process.arguments = [
      "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=\(name)",
      "-addext", "subjectAltName=DNS:\(name)", "-keyout", key.path, "-out", certificate.path,
    ]
    process.standardError = FileHandle.nullDevice
    try process.run()
    process.waitUntilExit()
    try #require(process.terminationStatus == 0)
    return (certificate, key)
  }

  /// A server at a port that was free.
  private func startServer(
    in place: URL, _ certificate: URL, _ key: URL
  ) async throws -> (server: PostgreSQLServer, port: Int) {
    var attempt = 0
    while true {
      attempt += 1
      let port = Int.random(in: 20_000..<32_000)
      let server = PostgreSQLServer(
        directory: place.appending(path: "server-\(attempt)"),
        settings: [
          "listen_addresses=localhost", "port=\(port)", "ssl=on", "ssl_cert_file=\(certificate.path)",
          "ssl_key_file=\(key.path)",
        ])
      do {
        try await server.start()
        return (server, port)
      } catch {
        if attempt == 10 { throw error }
      }
    }
  }

  @Test(
    "A certificate that does not fit is refused with the reason, and one that does is accepted",
    .enabled(if: FileManager.default.fileExists(atPath: "/usr/bin/openssl")))
  func certificates() async throws {
    let place = try TemporaryDirectory()
    let right = try await makeCertificate("localhost", in: place.parent)
    let other = try await makeCertificate("elsewhere", in: place.parent)
    let key = place.parent.appending(path: "server.key")
    try FileManager.default.copyItem(at: right.key, to: key)
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: key.path)
    try PostgreSQLServer.giveToUser(key)
    let (server, port) = try await startServer(in: place.parent, right.certificate, key)

    func open(_ options: String) async throws {
      let engine = try await PostgreSQLStorageEngine(
        "host=localhost port=\(port) user=postgres dbname=postgres \(options)", timeLimit: .seconds(10))
      try await engine.write(value(1), key: StockroomCore.CacheKey(verbatim: "k"))
      try await engine.close()
    }
    try await open("sslmode=verify-full sslrootcert=\(right.certificate.path)")
    for options in [
      "sslmode=verify-full sslrootcert=\(other.certificate.path)", "sslmode=verify-full sslrootcert=/nowhere",
    ] {
      let error = await #expect(throws: StorageError.self) { try await open(options) }
      #expect(error?.code == .permissionDenied, "\(String(describing: error))")
    }
    await server.stop(.fast)
  }
}
