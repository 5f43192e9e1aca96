import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomLMDB

@Suite("The file of an LMDB database") struct LMDBFileTests {
  @Test("The lock is released if the check of the file's path fails")
  func unreachablePlace() throws {
    let parent = try TemporaryDirectory()
    let (url, moved) = (parent.url.appending(path: "place"), parent.url.appending(path: "moved"))
    let file = try LMDBFile(directory: FileManager.Directory(url: url), permissions: .owner)
    try FileManager.default.moveItem(at: url, to: moved)
    // A symbolic link to itself.
    try FileManager.default.createSymbolicLink(atPath: url.path, withDestinationPath: url.path)
    #expect(throws: StorageError.self) { _ = try file.lock(timeout: .zero) }

    let other = try LMDBFile(directory: FileManager.Directory(url: moved), permissions: .owner)
    #expect(other.tryLock())
    // Closing the file would release the lock too.
    withExtendedLifetime(file) {}
  }
}
