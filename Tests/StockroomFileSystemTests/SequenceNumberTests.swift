import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomFileSystem

@Suite("Sequence numbers of creations")
struct SequenceNumberTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test("A reservation of numbers that could not be synced is synced before one of its numbers is used")
  func unsyncedReserve() throws {
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    defer { connection.release() }
    let error = #expect(throws: StorageError.self) {
      try connection.withLock {
        _ = try connection.reserveSequenceNumbers(1, at: .now()) { _ in
          throw StorageError(.diskFull, "In the test.")
        }
      }
    }
    #expect(error?.code == .diskFull)
    var syncs = 0
    var last: UInt64 = 0
    for _ in 0..<3 {
      let next = try connection.withLock {
        try connection.reserveSequenceNumbers(1, at: .now()) { file in
          try file.synchronize()
          syncs += 1
        }
      }
      #expect(next > last)
      #expect(syncs == 1)
      last = next
    }
  }

  @Test(
    "A reservation of another engine, which may have died before a sync, is synced before one of its numbers is used"
  )
  func reserveOfAnother() throws {
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    defer { connection.release() }
    _ = try connection.withLock { try connection.reserveSequenceNumbers(1, at: .now()) }
    let other = try DiskConnection(directory: place.url.path, durability: .full)
    try other.withLock {
      var contents = try other.state.read()
      contents.reservedSequence += 1_000_000_000
      try other.state.write(contents)
    }
    other.release()
    var syncs = 0
    for _ in 0..<2 {
      _ = try connection.withLock {
        try connection.reserveSequenceNumbers(1, at: .now()) { file in
          try file.synchronize()
          syncs += 1
        }
      }
    }
    #expect(syncs == 1)
  }

  @Test("A write is refused if no sequence number is left, and the place stays usable")
  func lastNumber() throws {
    let connection = try DiskConnection(directory: place.url.path, durability: .full)
    defer { connection.release() }
    let error = #expect(throws: StorageError.self) {
      _ = try connection.withLock {
        try connection.reserveSequenceNumbers(1, at: Timestamp(nanoseconds: Int64.max))
      }
    }
    #expect(error?.code == .io)
    _ = try connection.withLock { try connection.reserveSequenceNumbers(1, at: .now()) }
  }
}
