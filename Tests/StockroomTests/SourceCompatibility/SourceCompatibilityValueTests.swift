import Foundation
import Observation
import Stockroom
import TestFixtures
import Testing

private struct RedPanda: Codable, Equatable {
  var cuteRating: Int
}

private struct UserPreferences: Codable, Equatable {
  var hasProvidedNotificationsAccess: Bool
  var hasHapticsEnabled: Bool
  var prefersDarkMode: Bool
  var prefersWideScreenVideos: Bool
  var spatialAudioEnabled: Bool
}

private struct LikedVideos: Codable, Equatable {
  let ids: [Int]
}

private struct DownloadedVideos: Codable, Equatable {
  let ids: [Int]
}

private struct Zoo {
  @StoredValue<RedPanda>(key: "pandaRojo")
  var spanishRedPanda = RedPanda(cuteRating: 100)
}

private struct AppState {
  // An optional type where there is no default value.
  @StoredValue<UserPreferences?>(key: "userPreferences")
  var preferences

  @StoredValue(key: "likedEpisodes")
  var likedVideos = LikedVideos(ids: [1, 2, 3])

  @StoredValue<DownloadedVideos?>(key: "downloadedVideos")
  var downloadedVideos

  @StoredValue(key: "openLinksInSafari")
  var openLinksInSafari = true
}

private enum Theme: String, Codable, Sendable, Equatable {
  case light
  case dark
  case system
}

@Observable
private final class Preferences {
  @ObservationIgnored
  @StoredValue(key: "theme")
  var theme: Theme = .light
}

@Suite("Source compatibility: stored values") struct SourceCompatibilityValueTests {
  @Test("The state of an app, as it is at first, changed, and reset", .ownThreads)
  func appState() async {
    // In a process of its own, with preferences of its own.
    await #expect(processExitsWith: .success) {
      let home = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)")
      setenv("XDG_CONFIG_HOME", home.path(percentEncoded: false), 1)
      setenv("CFFIXED_USER_HOME", home.path(percentEncoded: false), 1)
      defer { try? FileManager.default.removeItem(at: home) }

      let zoo = Zoo()
      try #require(zoo.spanishRedPanda.cuteRating == 100)
      try zoo.$spanishRedPanda.set(\.cuteRating, to: 101)
      try #require(Zoo().spanishRedPanda.cuteRating == 101)
      try zoo.$spanishRedPanda.reset()
      try #require(zoo.spanishRedPanda.cuteRating == 100)

      let state = AppState()
      try #require(state.preferences == nil && state.downloadedVideos == nil)
      try #require(state.likedVideos.ids == [1, 2, 3])
      try state.$downloadedVideos.set(DownloadedVideos(ids: [4]))
      try state.$likedVideos.set(LikedVideos(ids: []))
      try #require(state.openLinksInSafari)
      try state.$openLinksInSafari.toggle()
      let afterwards = AppState()
      try #require(!afterwards.openLinksInSafari)
      try #require(afterwards.likedVideos.ids == [] && afterwards.downloadedVideos?.ids == [4])
      try state.$likedVideos.reset()
      try state.$downloadedVideos.reset()
      try state.$openLinksInSafari.reset()
      try #require(afterwards.likedVideos.ids == [1, 2, 3] && afterwards.downloadedVideos == nil)

      let preferences = Preferences()
      try #require(preferences.theme == .light)
      try preferences.$theme.set(.dark)
      try #require(Preferences().theme == .dark)
      try preferences.$theme.reset()
    }
  }
}
