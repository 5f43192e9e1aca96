import Foundation
import Observation
import StockroomCore
import StockroomStore
import Testing

/// Declarations in their usual forms.
private struct AppState {
  @StoredValue<RedPanda>(key: "pandaRojo") private var spanishRedPanda = RedPanda(cuteRating: 100)
  @StoredValue(key: "likedEpisodes") var likedVideos = LikedVideos(ids: [1, 2, 3])
  @StoredValue(key: "openLinksInSafari") var openLinksInSafari = true
  @StoredValue(key: "downloadedVideos") var downloadedVideos: DownloadedVideos?
  @StoredValue<DownloadedVideos?>(key: "otherVideos") var otherVideos

  var rating: Int { spanishRedPanda.cuteRating }
}

@Observable private final class Preferences {
  @ObservationIgnored @StoredValue(key: "theme") var theme: Theme = .light
}

@MainActor private final class Controller {
  @StoredValue var theme: Theme
  init(_ storage: UserDefaults) {
    _theme = StoredValue(wrappedValue: .system, key: "theme", storage: storage)
  }
}

@Suite struct StoredValueTests {
  private let defaults = TemporaryDefaults()

  @Test("The usual declarations compile and return the defaults")
  func declarations() {
    let state = AppState()
    #expect(state.rating == 100)
    #expect(state.likedVideos == LikedVideos(ids: [1, 2, 3]))
    #expect(state.openLinksInSafari)
    #expect(state.downloadedVideos == nil)
    #expect(state.otherVideos == nil)
    #expect(Preferences().theme == .light)
  }

  @Test("A property in a class on the main actor is set synchronously")
  @MainActor func controller() throws {
    let controller = try Controller(defaults.open())
    #expect(controller.theme == .system)
    try controller.$theme.set(.dark)
    #expect(controller.theme == .dark)
  }

  @Test("A stored value is read by a new object, and its bytes are JSON under the key, on disk too")
  func restart() throws {
    let panda = RedPanda(cuteRating: 7, name: "Pabu")
    @StoredValue(key: "panda", storage: try defaults.open()) var first = RedPanda(cuteRating: 1)
    try $first.set(panda)
    #expect(first == panda)

    @StoredValue(key: "panda", storage: try defaults.open()) var second = RedPanda(cuteRating: 2)
    #expect(second == panda)
    let bytes = try #require(try defaults.stored("panda"))
    #expect(try JSONDecoder().decode(RedPanda.self, from: bytes) == panda)
  }

  @Test("Reset removes the stored value, even twice, and the value is the default again")
  func reset() throws {
    @StoredValue(key: "theme", storage: try defaults.open()) var theme: Theme = .light
    try $theme.set(.dark)
    try $theme.reset()
    try $theme.reset()
    #expect(theme == .light)
    #expect(try defaults.stored("theme") == nil)
  }

  @Test("Reading a value stores nothing")
  func lookingStoresNothing() throws {
    @StoredValue(key: "theme", storage: try defaults.open()) var theme: Theme = .light
    #expect(theme == .light)
    #expect(try $theme.get() == .light)
    #expect($theme.failure == nil)
    #expect(try defaults.stored("theme") == nil)
  }

  @Test("Setting one property keeps the others")
  func keyPath() throws {
    @StoredValue(key: "panda", storage: try defaults.open()) var panda = RedPanda(cuteRating: 1, name: "Pabu")
    try $panda.set(\.cuteRating, to: 99)
    #expect(panda == RedPanda(cuteRating: 99, name: "Pabu"))
  }

  @Test("A flag can be toggled twice")
  func toggle() throws {
    @StoredValue(key: "flag", storage: try defaults.open()) var flag = true
    try $flag.toggle()
    #expect(!flag)
    try $flag.toggle()
    #expect(flag)
  }

  @Test("Elements can be appended, replaced and toggled")
  func array() throws {
    @StoredValue(key: "array", storage: try defaults.open()) var array: [String] = []
    try $array.append("a")
    try $array.append("b")
    try $array.append("a")
    try $array.replace("a", with: "c")
    #expect(array == ["c", "b", "a"])
    try $array.append("b")
    try $array.togglePresence("b")
    #expect(array == ["c", "a"])
    try $array.togglePresence("b")
    #expect(array == ["c", "a", "b"])
  }

  @Test("Replacing an absent element stores nothing")
  func replaceAbsent() throws {
    @StoredValue(key: "array", storage: try defaults.open()) var array = ["a"]
    try $array.replace("x", with: "y")
    #expect(array == ["a"])
    #expect(try defaults.stored("array") == nil)
  }

  @Test("Keys of a dictionary can be added, changed and removed")
  func dictionary() throws {
    @StoredValue(key: "dictionary", storage: try defaults.open(), codec: .json) var dictionary = ["a": 1]
    try $dictionary.update(key: "b", value: 2)
    try $dictionary.update(key: "a", value: 3)
    #expect(dictionary == ["a": 3, "b": 2])
    try $dictionary.update(key: "a", value: nil)
    try $dictionary.update(key: "absent", value: nil)
    #expect(dictionary == ["b": 2])
  }

  @Test("An update whose closure throws changes nothing")
  func throwingUpdate() throws {
    @StoredValue(key: "number", storage: try defaults.open()) var number = 1
    #expect(throws: CancellationError.self) {
      try $number.update { number in
        number = 5
        throw CancellationError()
      }
    }
    #expect(number == 1)
    #expect(try defaults.stored("number") == nil)
  }

  @Test("Nil can be stored if the default is not nil")
  func storedNil() throws {
    @StoredValue(key: "number", storage: try defaults.open()) var number: Int? = 5
    #expect(number == 5)
    try $number.set(nil)
    #expect(number == nil)
    try $number.reset()
    #expect(number == 5)
  }

  @Test("A custom codec is used for writing and reading")
  func codec() throws {
    let storage = try defaults.open()
    @StoredValue(key: "theme", storage: storage, codec: PropertyListCodec()) var themes: [Theme] = []
    try $themes.append(.dark)
    #expect(themes == [.dark])
    let bytes = try #require(try defaults.stored("theme"))
    #expect(try PropertyListDecoder().decode([Theme].self, from: bytes) == [.dark])
  }

  @Test(
    "Keys of any content are distinct",
    arguments: [
      "", " ", "a/b", "../a", "a\0b", "é", "e\u{301}", "🐼", "a.b", String(repeating: "k", count: 10_000),
    ])
  func keys(_ key: String) throws {
    @StoredValue(key: key, storage: try defaults.open()) var value = 0
    @StoredValue(key: key + "+", storage: try defaults.open()) var other = 0
    try $value.set(1)
    #expect(value == 1)
    #expect(other == 0)
    @StoredValue(key: key, storage: try defaults.open()) var again = 0
    #expect(again == 1)
  }

  @Test("Values of the same key in different suites are separate")
  func suites() throws {
    let otherDefaults = TemporaryDefaults()
    @StoredValue(key: "value", storage: try defaults.open()) var value = 0
    @StoredValue(key: "value", storage: try otherDefaults.open()) var other = 0
    try $value.set(1)
    #expect(other == 0)
    try $other.set(2)
    #expect(value == 1)
  }

  @Test("A value of a hundred thousand elements can be stored and read")
  func large() throws {
    @StoredValue(key: "large", storage: try defaults.open()) var large: [Int] = []
    try $large.set(Array(0..<100_000))
    @StoredValue(key: "large", storage: try defaults.open()) var again: [Int] = []
    #expect(again.count == 100_000)
  }

  @Test("Changes and removals by other code are visible")
  func changedByOthers() throws {
    let storage = try defaults.open()
    @StoredValue(key: "theme", storage: storage) var theme: Theme = .light
    #expect(theme == .light)
    try defaults.put(Data(#""dark""#.utf8), forKey: "theme")
    #expect(theme == .dark)
    try defaults.put(Data(#""system""#.utf8), forKey: "theme")
    #expect(theme == .system)
    try defaults.put(nil, forKey: "theme")
    #expect(theme == .light)
  }

  @Test(
    "A value that other code stores in the user defaults applies until one is stored, and reset removes it")
  func storedInDefaults() throws {
    let storage = try defaults.open()
    storage.set(Data(#""dark""#.utf8), forKey: "theme")
    _ = storage.synchronize()
    @StoredValue(key: "theme", storage: storage) var theme: Theme = .light
    #expect(theme == .dark)
    storage.removeObject(forKey: "theme")
    #expect(theme == .light)
    storage.set(Data(#""dark""#.utf8), forKey: "theme")
    try $theme.update {
      #expect($0 == .dark)
      $0 = .system
    }
    #expect(theme == .system)
    try $theme.reset()
    #expect(theme == .light)
    #expect(try defaults.open().object(forKey: "theme") == nil)
  }

  @Test("A registered default counts as stored until a value is stored")
  func registered() throws {
    // A registration applies to the whole process, so the key must be unique to this test.
    let key = UUID().uuidString
    let storage = try defaults.open()
    storage.register(defaults: [key: Data(#""dark""#.utf8)])
    @StoredValue(key: key, storage: storage) var theme: Theme = .light
    #expect(theme == .dark)
    try $theme.set(.system)
    #expect(theme == .system)
    try $theme.reset()
    #expect(theme == .dark)
  }
}
