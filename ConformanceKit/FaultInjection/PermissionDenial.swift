import Foundation
import StockroomCore

/// Opens places as a user without permission. If the process drops the superuser's permissions, it must not be used for
/// anything else.
struct PermissionDenial: CheckTask {
  /// Directories that can be neither read nor written, or stores with such files.
  let closed: [URL]
  /// A store that can be read but not written.
  let readable: URL
  let script: StoreScript

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    if System.isSuperuser { try System.becomeNobody() }
    guard System.canRead(readable) else {
      throw Skip(reason: "Only the superuser can enter the working directory of the checks.")
    }
    for place in closed {
      let what = "opening \(place.lastPathComponent) without permission"
      try note(what)
      do {
        let engine = EngineUnderTest(try await makeEngine(place))
        let keys = try await engine.allKeys()
        // If files are named after keys, the keys can be listed although no file can be read.
        try expect(
          !keys.isEmpty && Set(keys) == Set(script.contents().keys),
          "\(what) did not throw, and allKeys() returned \(keys.count) keys")
        for key in keys { _ = try await engine.read(key: key) }
        throw Violation("\(what) did not throw, and neither did allKeys() or read(key:) of any key")
      } catch {
        try classify(error, of: what, at: place)
      }
    }
    try note("opening a store that others own")
    do {
      let engine = EngineUnderTest(try await makeEngine(readable))
      for (key, value) in script.contents() {
        try expect(
          try await engine.read(key: key), is: value, "read(key:) of \(key) in a store that others own")
      }
      do {
        try await engine.write(data("v"), key: key("k"))
        throw Violation("write(_:key:) without permission did not throw")
      } catch {
        try classify(error, of: "write(_:key:) without permission", at: readable)
      }
      // An engine that cannot write need not close properly.
      try? await engine.close()
    } catch let violation as Violation {
      throw violation
    } catch {
      try classify(error, of: "opening a store that others own", at: readable)
    }
  }

  /// Fails unless the error names the path and says that permission is missing.
  private func classify(_ error: any Error, of call: String, at place: URL) throws {
    if let violation = error as? Violation { throw violation }
    let error = (error as? CallFailure)?.error ?? error
    guard let error = error as? StorageError else {
      throw Violation("\(call) threw \(shortened(String(describing: error))), which is not a StorageError")
    }
    let text = String(describing: error)
    try expect(
      [.permissionDenied, .readOnly].contains(error.code)
        || text.localizedCaseInsensitiveContains("permission"),
      "\(call) threw an error that does not name the cause: \(shortened(text))")
    try expect(
      text.contains(place.deletingLastPathComponent().lastPathComponent)
        || text.contains(place.lastPathComponent),
      "\(call) threw an error that does not name the path: \(shortened(text))")
  }
}
