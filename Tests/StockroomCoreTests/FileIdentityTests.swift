import Foundation
import TestFixtures
import Testing

@testable import StockroomCore

@Suite("Identities of files")
struct FileIdentityTests {
  @Test("The status without times has the identity and the size of the status with them")
  func sameAsStat() throws {
    let directory = try TemporaryDirectory()
    let file = directory.beside("file")
    try Data("contents".utf8).write(to: file)
    try FileManager.default.createDirectory(at: directory.url, withIntermediateDirectories: true)
    let descriptors = [
      try #require(try FileDescriptor.openFile(atPath: file.path, O_RDONLY)),
      try FileDescriptor.openDirectory(atPath: directory.url.path),
    ]
    for (url, descriptor) in zip([file, directory.url], descriptors) {
      let status = try #require(try FileStatus(atPath: url.path))
      let found = [UntimedFileStatus(path: url.path), UntimedFileStatus(descriptor: descriptor.number)]
      #expect(found.map { $0?.identity } == [status.identity, status.identity])
      #expect(found.map { $0?.size } == [status.size, status.size])
      #expect(try FileIdentity(path: url.path) == status.identity)
      #expect(try FileIdentity(descriptor: descriptor.number, path: url.path) == status.identity)
    }
  }

  @Test("A missing file has no identity, and an invalid descriptor is an error")
  func missing() throws {
    let directory = try TemporaryDirectory()
    #expect(try FileIdentity(path: directory.beside("missing").path) == nil)
    #expect(throws: StorageError.self) { try FileIdentity(descriptor: -1, path: "invalid") }
  }
}
