import Foundation
import StockroomCore
import Testing

@Suite("Errors") struct StorageErrorTests {
  private struct Cause: Error, CustomStringConvertible {
    var description: String { "No room, errno 28" }
  }

  @Test(
    "The description is one sentence with its cause",
    arguments: [
      ("Writing x failed.", "diskFull: Writing x failed (No room, errno 28)"),
      ("Writing x failed", "diskFull: Writing x failed (No room, errno 28)"),
    ])
  func cause(message: String, description: String) {
    #expect(StorageError(.diskFull, message, underlying: Cause()).description == description)
  }

  @Test("A description without a cause ends like its message")
  func withoutCause() {
    #expect(StorageError(.io, "Writing x failed.").description == "io: Writing x failed.")
  }

  @Test(
    "A number of entries has the right noun", arguments: [(0, "0 entries"), (1, "1 entry"), (2, "2 entries")])
  func entryCounts(number: Int, text: String) { #expect(number.entryCountText == text) }

  #if os(Linux)
    @Test("Reaching the limit of watched files is not reported as a full disk")
    func watchedFiles() {
      let error = FileWatch.refusal(ENOSPC, path: "/x")
      #expect(error.code == .io)
      #expect(error.message == "Watching /x failed: the system's limit of watched files is reached.")
      #expect(FileWatch.refusal(EACCES, path: "/x").code == .permissionDenied)
    }
  #endif
}
