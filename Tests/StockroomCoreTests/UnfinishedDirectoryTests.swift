import Foundation
import StockroomCore
import Testing

@Suite struct UnfinishedDirectoryTests {
  /// Calls `body` with the URL of a new directory, which is removed afterwards.
  private func withPlace(_ body: (URL) throws -> Void) throws {
    let place = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: place) }
    try makeDirectory(place)
    try body(place)
  }

  private func makeDirectory(_ url: URL) throws {
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: false)
  }

  private func names(in directory: URL) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
  }

  @Test("Only a directory that no process is using is removed as abandoned")
  func abandoned() throws {
    try withPlace { place in
      let file = place.appending(path: "data").path
      let abandoned = place.appending(path: "data-new-\(UUID().uuidString)")
      try makeDirectory(abandoned)
      for name in ["known", "unknown", "lock"] { try Data().write(to: abandoned.appending(path: name)) }
      let directory = try UnfinishedDirectory(for: file)
      let used = URL(filePath: directory.path).lastPathComponent
      #expect(try names(in: place) == [abandoned.lastPathComponent, used].sorted())

      UnfinishedDirectory.removeAbandoned(for: file, ["known"])
      #expect(try names(in: place) == [abandoned.lastPathComponent, used].sorted())
      #expect(try names(in: abandoned) == ["unknown"])
      try Data().write(to: abandoned.appending(path: "lock"))
      UnfinishedDirectory.removeAbandoned(for: file, ["known", "unknown"])
      #expect(try names(in: place) == [used])

      try Data().write(to: URL(filePath: directory.path + "/known"))
      directory.remove(["known"])
      #expect(try names(in: place) == [])
    }
  }

  @Test("Nothing with another name, and nothing but a directory, is removed as abandoned")
  func others() throws {
    try withPlace { parent in
      let (place, outside) = (parent.appending(path: "place"), parent.appending(path: "outside"))
      try makeDirectory(place)
      try makeDirectory(outside)
      try Data().write(to: outside.appending(path: "known"))
      let id = UUID().uuidString
      var expected = ["data-new-", "data-new-x", "data-\(id)", "data2-new-\(id)", "x-data-new-\(id)"]
      for name in expected { try makeDirectory(place.appending(path: name)) }
      let (link, plain) = ("data-new-\(UUID().uuidString)", "data-new-\(UUID().uuidString)")
      try FileManager.default.createSymbolicLink(
        at: place.appending(path: link), withDestinationURL: outside)
      try Data().write(to: place.appending(path: plain))
      expected += [link, plain]
      UnfinishedDirectory.removeAbandoned(for: place.appending(path: "data").path, ["known"])
      #expect(try names(in: place) == expected.sorted())
      #expect(try names(in: outside) == ["known"])
    }
  }
}
