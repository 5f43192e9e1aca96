import Foundation
import StockroomCore
import StockroomEngines
import StockroomKitSupport
@testable import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite("PostgreSQL: TLS", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLSecurityTests {
  /// A self-signed certificate with its key.
  private func makeCertificate(_ name: String, in place: URL) async throws -> (certificate: URL, key: URL) {
    let (certificate, key) = (place.appending(path: "\(name).crt"), place.appending(path: "\(name).key"))
    let output = try await ProgramOutput(of: [
      "/usr/bin/openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj",
      "/CN=\(name)",
      "-addext", "subjectAltName=DNS:\(name)", "-keyout", key.path, "-out", certificate.path,
    ])
    try #require(output.isSuccess, "\(output.explanation)")
    return (certificate, key)
  }

  /// A server on a free port.
  private func startServer(
    in place: URL, settings: [String], accessRules: [String] = []
  ) async throws -> (server: PostgreSQLServer, port: Int) {
    var attempt = 0
    while true {
      attempt += 1
      let port = Int.random(in: 20_000..<32_000)
      let server = PostgreSQLServer(
        directory: place.appending(path: "server-\(attempt)"), port: port,
        settings: ["listen_addresses=localhost"] + settings, accessRules: accessRules)
      do {
        try await server.start()
        return (server, port)
      } catch {
        if attempt == 10 { throw error }
      }
    }
  }

  private func settings(_ certificate: URL, _ key: URL) -> [String] {
    ["ssl=on", "ssl_cert_file=\(certificate.path)", "ssl_key_file=\(key.path)"]
  }

  @Test(
    "An untrusted certificate is refused with the reason, and a trusted one is accepted",
    .enabled(if: FileManager.default.fileExists(atPath: "/usr/bin/openssl")))
  func certificates() async throws {
    let place = try TemporaryDirectory()
    let right = try await makeCertificate("localhost", in: place.parent)
    let other = try await makeCertificate("elsewhere", in: place.parent)
    let key = try serverKey(right.key, in: place.parent)
    let (server, port) = try await startServer(
      in: place.parent, settings: settings(right.certificate, key))
    func open(_ options: String) async throws { try await use(port, "user=postgres \(options)") }

    try await open("sslmode=verify-full sslrootcert=\(right.certificate.path)")
    for options in [
      "sslmode=verify-full sslrootcert=\(other.certificate.path)", "sslmode=verify-full sslrootcert=/nowhere",
    ] {
      let error = await #expect(throws: StorageError.self) { try await open(options) }
      #expect(error?.code == .permissionDenied, "\(String(describing: error))")
    }
    await server.stop(.fast)
  }

  @Test(
    "Client certificates and channel-bound passwords are taken from the connection string",
    .enabled(if: FileManager.default.fileExists(atPath: "/usr/bin/openssl")))
  func clients() async throws {
    let place = try TemporaryDirectory()
    let own = try await makeCertificate("localhost", in: place.parent)
    let client = try await makeCertificate("postgres", in: place.parent)
    let stranger = try await makeCertificate("stranger", in: place.parent)
    // libpq rejects a key that other users can read.
    for key in [client.key, stranger.key] { try setPrivate(key) }
    let ownKey = try serverKey(own.key, in: place.parent)
    let (server, port) = try await startServer(
      in: place.parent,
      settings: settings(own.certificate, ownKey) + ["ssl_ca_file=\(client.certificate.path)"],
      accessRules: [
        "hostssl all postgres localhost cert", "hostssl all secured localhost scram-sha-256",
        "hostnossl all secured localhost scram-sha-256",
      ])
    try await server.execute(
      "CREATE ROLE secured LOGIN PASSWORD 'the-password'; GRANT CREATE ON DATABASE postgres TO secured")
    let encrypted = "sslmode=verify-full sslrootcert=\(own.certificate.path)"

    try await use(
      port, "user=postgres \(encrypted) sslcert=\(client.certificate.path) sslkey=\(client.key.path)")
    try await use(port, "user=secured password=the-password \(encrypted) channel_binding=require")
    for options in [
      "user=postgres \(encrypted)",
      "user=postgres \(encrypted) sslcert=\(stranger.certificate.path) sslkey=\(stranger.key.path)",
      "user=secured password=the-password sslmode=disable channel_binding=require",
    ] {
      let error = await #expect(throws: StorageError.self) { try await use(port, options) }
      #expect(error?.code == .permissionDenied, "\(options): \(String(describing: error))")
      #expect(!"\(String(describing: error))".contains("the-password"))
    }
    await server.stop(.fast)
  }

  @Test(
    "If one of a host's addresses refuses the password, that error is thrown, in any order (rule N5)",
    arguments: [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"]])
  func addresses(addresses: [String]) async throws {
    let place = try TemporaryDirectory()
    let (server, port) = try await startServer(
      in: place.parent, settings: ["listen_addresses=127.0.0.1"],
      accessRules: ["host all secured 127.0.0.1/32 scram-sha-256"])
    try await server.execute("CREATE ROLE secured LOGIN PASSWORD 'the-password'")
    let connector = PostgreSQLConnector(
      try PostgreSQLAddress(
        "host=shop port=\(port) dbname=postgres user=secured password=not-the-password sslmode=disable"),
      try PostgreSQLNamespace("orders"),
      PostgreSQLSettings(durability: .full, timeLimit: .seconds(300), isPooled: false))
    let host = try #require(connector.address.hosts.first)
    let failure = #expect(throws: PostgreSQLFailure.self) {
      _ = try connector.attempt(host, at: addresses, until: .now + .seconds(300)) {}
    }
    #expect(failure?.sqlState == "28P01", "\(String(describing: failure))")
    await server.stop(.fast)
  }

  @Test(
    "An encrypted connection that ends is lost, and one with an untrusted certificate is refused",
    arguments: [
      ("SSL connection has been closed unexpectedly", true),
      ("SSL error: unexpected eof while reading", true),
      ("SSL SYSCALL error: EOF detected", true), ("SSL error: certificate verify failed", false),
      (
        "connection to server at \"db\", port 5432 failed: could not send SSL negotiation packet: Broken pipe",
        true
      ),
      // The name of a host or a file must not matter.
      ("connection to server at \"certificates\" (10.0.0.1), port 5432 failed: Connection refused", true),
      ("connection to server on socket \"/SSL/.s.PGSQL.5432\" failed: No such file or directory", true),
      ("server certificate for \"SYSCALL\" does not match host name \"db\"", false),
    ])
  func endedEncryption(text: String, isLost: Bool) {
    let failure = PostgreSQLConnector.failure(saying: text, needsPassword: false)
    #expect(failure.isTemporary == isLost)
    #expect(StorageError.postgreSQL(failure, "").code == (isLost ? .unavailable : .permissionDenied))
  }

  /// A copy of the key that only the server can read.
  private func serverKey(_ key: URL, in place: URL) throws -> URL {
    let copy = place.appending(path: "server.key")
    try FileManager.default.copyItem(at: key, to: copy)
    try setPrivate(copy)
    try PostgreSQLServer.giveToUser(copy)
    return copy
  }

  private func setPrivate(_ file: URL) throws {
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file.path)
  }

  /// Writes with an engine that is opened with these options.
  private func use(_ port: Int, _ options: String) async throws {
    let engine = try await PostgreSQLStorageEngine(
      "host=localhost port=\(port) dbname=postgres \(options)", namespace: newNamespace(),
      timeLimit: .seconds(300))
    try await engine.write(value(1), key: key(1))
    try await engine.close()
  }
}
