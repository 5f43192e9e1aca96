import Foundation
import StockroomEngines
import StockroomKitSupport
import Testing

@Suite("Data in PostgreSQL", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct DataPostgreSQLTests {
  @Test("Commands work on a namespace, make none by mistake, and show no password")
  func commands() async throws {
    try await withTemporaryDirectory { directory in
      let server = PostgreSQLServer(directory: directory.appending(path: "s"))
      try await server.start()
      let socket = try #require(
        server.directory.path.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
      let url = "postgresql://postgres:secret@\(socket)/postgres?namespace=my%20notes"
      let shown = "postgresql://\(socket)/postgres?namespace=my notes"
      func run(_ arguments: String...) async throws -> CommandLineTool.Output {
        let output = try await CommandLineTool.run(arguments.map { $0 == "PLACE" ? url : $0 })
        #expect(!output.standardError.contains("secret"))
        return output
      }
      for arguments in [["count"], ["watch"], ["list"], ["remove", "k"], ["put", "k", "--value", "1"]] {
        let output = try await CommandLineTool.run([arguments[0], url] + arguments.dropFirst())
        #expect(output.status == 1)
        #expect(
          output.standardError.hasPrefix(
            "stockroom: \(shown): unsupported: The schema \"my notes\" of "))
        #expect(!output.standardError.contains("secret"))
      }
      #expect(try await run("put", "PLACE", "--create", "k", "--value", "1").status == 0)
      #expect(try await run("list", "PLACE", "--values").standardOutput == "k\t1\n")
      #expect(try await run("get", "PLACE", "k").standardOutput == "1")
      #expect(
        try await run("verify", "PLACE").standardOutput == "\(shown): no corruption found in 1 entry\n")
      #expect(try await run("count", "PLACE", "--layer", "namespaced=n").standardOutput == "0\n")

      let process = try LineProcess([CommandLineTool.url.path, "watch", url])
      #expect(await process.nextLine() == Data("everything".utf8))
      #expect(
        try await run("remove", "PLACE", "k", "--format", "json").standardOutput == #"{"removed":1}"# + "\n")
      #expect(await process.nextLine() == Data("key k".utf8))
      #expect(kill(process.identifier, SIGINT) == 0)
      #expect(await process.waitUntilEnd() == .exited(status: 0))
      await server.stop()
    }
  }
}
