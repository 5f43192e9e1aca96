import Foundation
import StockroomCore
import Testing

@Suite struct FileLockTests {
  @Test(
    "A lock held through another descriptor is waited for until the timeout, and acquired once it is released"
  )
  func timeout() throws {
    let path = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)").path
    let descriptors = (0..<2).map { _ in open(path, O_RDWR | O_CREAT, 0o600) }
    defer {
      for descriptor in descriptors { close(descriptor) }
      unlink(path)
    }
    try FileLock.acquire(descriptors[0], path: path, timeout: .zero)
    #expect(try FileLock.tryAcquire(descriptors[1], path: path) == false)
    let error = #expect(throws: StorageError.self) {
      try FileLock.acquire(descriptors[1], path: path, timeout: .milliseconds(20))
    }
    #expect(error?.code == .locked)
    #expect(error?.description.contains(path) == true)
    FileLock.release(descriptors[0])
    #expect(try FileLock.tryAcquire(descriptors[1], path: path))
  }

  @Test("A descriptor that cannot be locked throws .io, not .locked")
  func invalid() {
    let error = #expect(throws: StorageError.self) { try FileLock.tryAcquire(-1, path: "/somewhere") }
    #expect(error?.code == .io)
  }
}
