import Foundation
import StockroomKitSupport
import TestFixtures
import Testing

@Suite("The script that builds the documentation")
struct DocumentationScriptTests {
  /// Substitutes for the compiler and DocC, which would take minutes.
  private static let programs = [
    "swift": """
    #!/bin/sh
    case "$*" in
      "build --show-bin-path") echo "$PWD/build/debug" ;;
      package*)
        mkdir -p build/symbolgraph
        for module in A B C; do : > "build/symbolgraph/$module.symbols.json"; done ;;
    esac
    """,
    "docc": """
    #!/bin/sh
    for last; do :; done
    if [ "$1" = merge ]; then mkdir "$last" && echo new > "$last/index.html"; fi
    """,
  ]

  /// Runs the script in the directory, with `output` as the path of the site.
  private func makeDocs(_ output: String, in directory: TemporaryDirectory) async throws -> ProgramOutput {
    let script = URL(filePath: #filePath).deletingLastPathComponent().appending(
      path: "../../Scripts/make-docs"
    ).standardizedFileURL
    for catalog in ["Sources/A/A.docc", "ConformanceKit/B.docc", "Benchmarks/C/C.docc", "programs"] {
      try FileManager.default.createDirectory(
        at: directory.appending(catalog), withIntermediateDirectories: true)
    }
    for (name, text) in Self.programs {
      try Data(text.utf8).write(to: directory.appending("\(name).sh"))
      // Executing a file that this process has written can fail with ETXTBSY: processes that other tests start
      // meanwhile inherit its descriptor.
      let installed = try await ProgramOutput(
        of: ["/usr/bin/install", "-m", "755", "\(name).sh", "programs/\(name)"], in: directory.url)
      try #require(installed.isSuccess, "\(installed.explanation)")
    }
    return try await ProgramOutput(
      of: [
        "/bin/sh", "-c", #"PATH="$PWD/programs:$PATH" exec /bin/sh "$@""#, "sh", script.path, output,
      ], in: directory.url)
  }

  @Test("It replaces its own folder, and an empty one")
  func ownFolder() async throws {
    let directory = try TemporaryDirectory()
    let (site, page) = (directory.appending("site"), directory.appending("site/index.html"))
    try FileManager.default.createDirectory(at: site, withIntermediateDirectories: false)
    for _ in 0..<2 {
      let made = try await makeDocs("site", in: directory)
      #expect(made.isSuccess, "\(made.explanation)")
      #expect(try String(contentsOf: page, encoding: .utf8) == "new\n")
      try Data("old".utf8).write(to: page)
    }
  }

  @Test("It refuses a folder of other files, and a file, and leaves them as they are")
  func otherFolder() async throws {
    let directory = try TemporaryDirectory()
    let file = directory.appending("precious/file")
    try FileManager.default.createDirectory(
      at: directory.appending("precious"), withIntermediateDirectories: false)
    try Data("precious".utf8).write(to: file)
    for output in ["precious", "precious/", "precious/file"] {
      let refused = try await makeDocs(output, in: directory)
      #expect(refused.ending == .exited(status: 1))
      #expect(refused.errorText.contains("so it is not replaced"), "\(refused.errorText)")
      #expect(try String(contentsOf: file, encoding: .utf8) == "precious")
    }
  }
}
