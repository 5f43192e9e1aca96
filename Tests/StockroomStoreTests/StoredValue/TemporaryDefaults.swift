import Foundation

/// User defaults for one test, removed when the last reference goes.
final class TemporaryDefaults: Sendable {
  let suiteName = "stockroom-\(UUID().uuidString)"

  /// Another `UserDefaults` of the same suite each time.
  func open() throws -> UserDefaults { try open(suiteName) }

  /// User defaults whose file cannot be made, since what would be its directory is a file.
  func openWhereNothingCanBeWritten() throws -> UserDefaults {
    let defaults = try open()
    defaults.set(true, forKey: "makes the file")
    _ = defaults.synchronize()
    return try open("\(suiteName).plist/inside")
  }

  /// What is on disk: where Foundation keeps its preferences outside of Apple's platforms.
  var file: URL {
    let environment = ProcessInfo.processInfo.environment
    let directory =
      environment["XDG_CONFIG_HOME"].map { URL(filePath: $0, directoryHint: .isDirectory) }
      ?? FileManager.default.homeDirectoryForCurrentUser.appending(path: ".config")
    return directory.appending(path: "\(suiteName).plist")
  }

  private func open(_ suiteName: String) throws -> UserDefaults {
    guard let defaults = UserDefaults(suiteName: suiteName) else { throw CocoaError(.fileNoSuchFile) }
    return defaults
  }

  deinit {
    UserDefaults(suiteName: suiteName)?.removePersistentDomain(forName: suiteName)
    try? FileManager.default.removeItem(at: file)
  }
}
