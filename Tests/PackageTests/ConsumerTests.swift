import Foundation
import StockroomKitSupport
import TestFixtures
import Testing

@Suite("A package that depends on Stockroom")
struct ConsumerTests {
  /// Products that a consumer depends on, with traits, and the packages that are cloned for them.
  struct Consumed: Sendable, CustomTestStringConvertible {
    let products: [String]
    var traits = ""
    let cloned: [String]

    var testDescription: String { products.joined(separator: ", ") + traits }
  }

  @Test(
    "A consumer clones what it uses, and nothing else",
    arguments: [
      Consumed(products: ["StockroomLMDB", "StockroomLayers"], cloned: ["stockroom", "swift-collections"]),
      Consumed(
        products: ["StockroomLayers"], traits: #", traits: ["Encryption"]"#,
        cloned: ["stockroom", "swift-asn1", "swift-collections", "swift-crypto"]),
      Consumed(
        products: ["StockroomLayers"], traits: #", traits: ["Instrumentation"]"#,
        cloned: ["stockroom", "swift-collections", "swift-distributed-tracing", "swift-metrics"]),
    ])
  func clonedPackages(consumed: Consumed) async throws {
    let directory = try TemporaryDirectory()
    let stockroom = directory.appending("stockroom")
    let consumer = directory.appending("consumer")
    let dependencies = consumed.products.map { #".product(name: "\#($0)", package: "stockroom")"# }
    try write(
      try String(contentsOf: root.appending(path: "Package.swift"), encoding: .utf8),
      to: stockroom.appending(path: "Package.swift"))
    try await run(["git", "init", "--quiet"], in: stockroom)
    try await run(["git", "add", "Package.swift"], in: stockroom)
    let identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
    try await run(["git"] + identity + ["commit", "--quiet", "--message", "Test"], in: stockroom)
    try await run(["git", "tag", "1.0.0"], in: stockroom)
    try write(
      """
      // swift-tools-version: 6.2
      import PackageDescription

      let package = Package(
        name: "Consumer",
        platforms: [.macOS(.v15)],
        dependencies: [.package(url: "\(stockroom.absoluteString)", from: "1.0.0"\(consumed.traits))],
        targets: [
          .target(name: "Consumer", dependencies: [\(dependencies.joined(separator: ", "))])
        ])
      """, to: consumer.appending(path: "Package.swift"))

    let output = try await run(["swift", "package", "resolve"], in: consumer)
    let checkouts = consumer.appending(path: ".build/checkouts")
    let cloned = try FileManager.default.contentsOfDirectory(atPath: checkouts.path(percentEncoded: false))
    #expect(cloned.sorted() == consumed.cloned, "\(output)")
  }

  private var root: URL {
    URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
  }

  private func write(_ text: String, to file: URL) throws {
    try FileManager.default.createDirectory(
      at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
    try Data(text.utf8).write(to: file)
  }

  /// Runs a command and returns what it prints.
  @discardableResult
  private func run(_ command: [String], in directory: URL) async throws -> String {
    let output = try await ProgramOutput(of: ["/usr/bin/env"] + command, in: directory)
    try #require(output.isSuccess, "\(command) failed: \(output.text)\(output.errorText)")
    return output.text + output.errorText
  }
}
