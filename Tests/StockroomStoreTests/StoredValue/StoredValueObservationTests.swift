import Foundation
import Observation
import StockroomCore
import StockroomStore
import Testing

@Observable private final class Preferences {
  @ObservationIgnored @StoredValue var theme: Theme
  init(_ storage: UserDefaults) { _theme = StoredValue(wrappedValue: .light, key: "theme", storage: storage) }
}

@Suite(.timeLimit(.minutes(60))) struct StoredValueObservationTests {
  private let defaults = TemporaryDefaults()

  @Test("Each operation is one change, and one that changes nothing is none")
  func oneChange() throws {
    let value = StoredValue(wrappedValue: ["a"], key: "list", storage: try defaults.open())
    let changes = ChangeCounter { _ = value.wrappedValue }
    var expected = 0
    func expectChange(_ number: Int, _ operation: () throws -> Void) rethrows {
      try operation()
      expected += number
      #expect(changes.count == expected)
    }
    try expectChange(1) { try value.append("b") }
    try expectChange(1) { try value.replace("a", with: "c") }
    try expectChange(0) { try value.replace("x", with: "y") }
    try expectChange(1) { try value.togglePresence("c") }
    try expectChange(0) { try value.set(["b"]) }
    try expectChange(1) { try value.reset() }
    try expectChange(0) { try value.reset() }
    expectChange(0) { try? value.update { _ in throw CancellationError() } }
  }

  @Test("Observers read the new value when they are notified")
  func newValue() throws {
    let value = StoredValue(wrappedValue: 0, key: "number", storage: try defaults.open())
    let seen = MutexProtected(-1)
    withObservationTracking {
      _ = value.wrappedValue
    } onChange: {
      let number = value.wrappedValue
      seen.withLock { $0 = number }
    }
    try value.set(5)
    #expect(seen.withLock { $0 } == 5)
  }

  @Test("The value can be observed through a class that is itself observable")
  func inClass() throws {
    let preferences = Preferences(try defaults.open())
    let changes = MutexProtected(0)
    withObservationTracking {
      _ = preferences.theme
    } onChange: {
      changes.withLock { $0 += 1 }
    }
    try preferences.$theme.set(.dark)
    #expect(changes.withLock { $0 } == 1)
    #expect(preferences.theme == .dark)
  }

  @Test("A failure is observed when it appears and when it disappears")
  func failure() async throws {
    let storage = try defaults.open()
    let value = StoredValue(wrappedValue: 0, key: "number", storage: storage)
    let changes = ChangeCounter { _ = value.failure }
    let valueChanges = ChangeCounter { _ = value.wrappedValue }
    try value.set(1)
    #expect(changes.count == 0)
    try defaults.put(Data("text".utf8), forKey: "number")
    #expect(value.wrappedValue == 0)
    // Reported by this read, or by the read after the system's notification.
    while changes.count < 1 || valueChanges.count < 2 { await Task.yield() }
    try value.reset()
    #expect(changes.count == 2)
    #expect(valueChanges.count == 2)
  }

  @Test("An observer may change the value")
  func changeFromObserver() throws {
    let value = StoredValue(wrappedValue: 0, key: "number", storage: try defaults.open())
    withObservationTracking {
      _ = value.wrappedValue
    } onChange: {
      // Called again for its own change, like any observer that changes what it observes.
      if value.wrappedValue < 10 { #expect(throws: Never.self) { try value.update { $0 += 10 } } }
    }
    try value.set(1)
    #expect(value.wrappedValue == 11)
  }

  @Test("Observations yields the value and its changes")
  @available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *)
  func observations() async throws {
    let value = StoredValue(wrappedValue: 0, key: "number", storage: try defaults.open())
    var iterator = Observations { value.wrappedValue }.makeAsyncIterator()
    #expect(await iterator.next() == 0)
    try value.set(1)
    #expect(await iterator.next() == 1)
  }
}
