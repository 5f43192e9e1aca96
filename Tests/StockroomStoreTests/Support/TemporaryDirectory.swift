import Foundation

/// A directory for one test, removed when the last reference is released.
final class TemporaryDirectory: Sendable {
  let url = FileManager.default.temporaryDirectory.appending(
    path: "stockroom-\(UUID().uuidString)", directoryHint: .isDirectory)

  init() throws { try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true) }

  deinit { try? FileManager.default.removeItem(at: url) }
}
