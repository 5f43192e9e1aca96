#if os(Linux)
  import Foundation
  import Glibc
  import Observation
  import StockroomCore
  import StockroomStore
  import TestFixtures
  import Testing

  /// The file that stores values on other platforms than Apple's, where Foundation's preferences can lose
  /// changes.
  @Suite(.timeLimit(.minutes(60))) struct StoredValueFileTests {
    private let defaults = TemporaryDefaults()

    private func number(_ key: String = "number") throws -> StoredValue<Int> {
      StoredValue(wrappedValue: 0, key: key, storage: try defaults.open())
    }

    @Test("No change is lost when several processes change one value", .ownThreads)
    func severalProcesses() async throws {
      let suiteName = defaults.suiteName
      try await withThrowingTaskGroup { group in
        for index in 0..<3 {
          group.addTask {
            await #expect(processExitsWith: .success) {
              [suiteName = suiteName as String, index = index as Int] in
              let storage = try TemporaryDefaults(of: suiteName).open()
              let counter = StoredValue(wrappedValue: 0, key: "counter", storage: storage)
              let own = StoredValue(wrappedValue: [Int](), key: "list \(index)", storage: storage)
              for number in 0..<20 {
                try counter.update { $0 += 1 }
                try own.append(number)
              }
            }
          }
        }
        try await group.waitForAll()
      }
      #expect(try number("counter").get() == 60)
      for index in 0..<3 {
        let list = StoredValue(wrappedValue: [Int](), key: "list \(index)", storage: try defaults.open())
        #expect(try list.get() == Array(0..<20))
      }
    }

    @Test("The next read returns what another process stored, and updates are based on it", .ownThreads)
    func otherProcess() async throws {
      let value = try number()
      try value.set(1)
      await set(2)
      #expect(value.wrappedValue == 2)
      await set(3)
      try value.update { $0 *= 10 }
      #expect(value.wrappedValue == 30)
    }

    @Test(
      "Streams and observers receive changes of another process, even if there was no file before",
      .ownThreads)
    func changesByAnotherProcess() async throws {
      let value = try number()
      let (changes, continuation) = AsyncStream.makeStream(of: Void.self)
      withObservationTracking {
        _ = value.wrappedValue
      } onChange: {
        continuation.finish()
      }
      var values = value.values.makeAsyncIterator()
      #expect(await values.next() == 0)
      await set(1)
      #expect(await values.next() == 1)
      for await _ in changes {}
      try FileManager.default.removeItem(at: defaults.suiteDirectory)
      #expect(await values.next() == 0)
      await set(2)
      #expect(await values.next() == 2)
    }

    @Test(
      "A value whose first use was an update receives changes of another process too",
      .ownThreads, .timeLimit(.minutes(60)))
    func doorbellAfterUpdate() async throws {
      let value = try number()
      try value.update { $0 = 1 }
      var values = value.values.makeAsyncIterator()
      #expect(await values.next() == 1)
      await set(2)
      #expect(await values.next() == 2)
    }

    private func set(_ number: Int) async {
      await #expect(processExitsWith: .success) {
        [suiteName = defaults.suiteName as String, number = number as Int] in
        let storage = try TemporaryDefaults(of: suiteName).open()
        try StoredValue(wrappedValue: 0, key: "number", storage: storage).set(number)
      }
    }

    @Test("A process killed during a write leaves a value that it stored, and all other values", .ownThreads)
    func killed() async throws {
      let precious = try number("precious")
      try precious.set(7)
      for _ in 0..<5 {
        await #expect(processExitsWith: .signal(SIGKILL)) { [suiteName = defaults.suiteName as String] in
          let storage = try TemporaryDefaults(of: suiteName).open()
          let value = StoredValue(wrappedValue: [Int](), key: "list", storage: storage)
          Thread.detachNewThread {
            usleep(.random(in: 5_000..<20_000))
            kill(getpid(), SIGKILL)
          }
          while true { try value.set(Array(repeating: .random(in: 0..<9), count: 1_000)) }
        }
        let list = try StoredValue(wrappedValue: [Int](), key: "list", storage: defaults.open()).get()
        #expect(list.isEmpty || list.count == 1_000)
        #expect(Set(list).count <= 1)
        #expect(try number("precious").get() == 7)
      }
      try precious.set(8)
      #expect(try number("precious").get() == 8)
    }

    @Test("The file is complete at all times")
    func whole() async throws {
      let value = try number()
      try value.set(0)
      let isDone = Shared(false)
      try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask {
          for number in 1...50 { try value.set(number) }
          isDone.withLock { $0 = true }
        }
        group.addTask {
          while !isDone.withLock({ $0 }) {
            let bytes = try defaults.stored("number")
            #expect(bytes != nil)
          }
        }
        try await group.waitForAll()
      }
    }

    @Test("A write replaces the file, and leaves the bytes of the previous one unchanged")
    func replaced() throws {
      let value = try number()
      try value.set(1)
      let previous = defaults.directory.appending(path: "previous")
      try FileManager.default.linkItem(at: defaults.file, to: previous)
      let bytes = try Data(contentsOf: previous)
      try value.set(2)
      #expect(try Data(contentsOf: previous) == bytes)
      #expect(try FileIdentity(path: defaults.file.path) != FileIdentity(path: previous.path))
      #expect(try number().get() == 2)
    }

    @Test(
      "With a corrupted file values are defaults, failure is .corrupted, and the file is not overwritten",
      arguments: ["", "[", #"{"version":1}"#, #"{"version":2,"values":[]}"#])
    func corrupted(_ text: String) throws {
      let value = try number()
      try value.set(1)
      let bytes = Data(text.utf8)
      try bytes.write(to: defaults.file)
      let code: StorageError.Code = text.contains("2") ? .unsupported : .corrupted
      #expect(value.wrappedValue == 0)
      #expect(value.failure?.code == code)
      #expect(value.failure?.message.contains(defaults.file.path) == true)
      for operation in [{ try value.set(2) }, { try value.reset() }, { try value.update { $0 += 1 } }] {
        let error = #expect(throws: StorageError.self) { try operation() }
        #expect(error?.code == code)
      }
      #expect(try Data(contentsOf: defaults.file) == bytes)
      try FileManager.default.removeItem(at: defaults.file)
      try value.set(3)
      #expect(value.wrappedValue == 3)
    }

    @Test("The file and its directory belong to their owner alone")
    func permissions() throws {
      try number().set(1)
      for (url, mode) in [
        (defaults.directory, 0o700), (defaults.file, 0o600),
        (defaults.directory.appending(path: "StoredValues.lock"), 0o600),
      ] {
        let attributes = try FileManager.default.attributesOfItem(atPath: url.path)
        #expect(attributes[.posixPermissions] as? Int == mode)
      }
      #expect(
        try FileManager.default.contentsOfDirectory(atPath: defaults.directory.path).sorted()
          == ["StoredValues.json", "StoredValues.lock"])
    }

    @Test("Symbolic links and FIFOs in the directory are neither written through nor waited for")
    func planted() throws {
      try FileManager.default.createDirectory(at: defaults.directory, withIntermediateDirectories: true)
      let victim = defaults.suiteDirectory.appending(path: "victim")
      try Data("theirs".utf8).write(to: victim)
      let new = defaults.directory.appending(path: "StoredValues.json.new")
      try FileManager.default.createSymbolicLink(at: new, withDestinationURL: victim)
      let value = try number()
      try value.set(1)
      #expect(value.wrappedValue == 1)

      try FileManager.default.removeItem(at: defaults.file)
      mkfifo(defaults.file.path, 0o600)
      #expect(value.failure?.code == .corrupted)
      #expect(throws: StorageError.self) { try value.set(2) }
      try FileManager.default.removeItem(at: defaults.file)

      let lock = defaults.directory.appending(path: "StoredValues.lock")
      try FileManager.default.removeItem(at: lock)
      try FileManager.default.createSymbolicLink(at: lock, withDestinationURL: victim)
      #expect(throws: StorageError.self) { try value.set(2) }
      #expect(try Data(contentsOf: victim) == Data("theirs".utf8))
    }

    @Test("A value that cannot be written to disk throws, and nothing has changed")
    func unwritable() throws {
      try Data().write(to: defaults.suiteDirectory)
      let value = try number()
      for operation in [{ try value.set(2) }, { try value.update { $0 += 1 } }] {
        let error = #expect(throws: StorageError.self) { try operation() }
        #expect(error?.code == .io)
      }
      #expect(value.wrappedValue == 0)
      #expect(value.failure == nil)
    }

    @Test("A removed directory is recreated with the values stored from then on")
    func removed() throws {
      let value = try number()
      let other = try number("other")
      try value.set(1)
      try other.set(1)
      try FileManager.default.removeItem(at: defaults.suiteDirectory)
      #expect(value.wrappedValue == 0)
      try value.set(2)
      #expect(value.wrappedValue == 2)
      #expect(other.wrappedValue == 0)
      #expect(try defaults.stored("number") != nil)
    }

    @Test("A directory that is removed while an operation waits for the lock is recreated")
    func removedWhileWaiting() throws {
      let value = try number()
      try value.set(1)
      let lock = defaults.directory.appending(path: "StoredValues.lock")
      let holder = open(lock.path, O_RDWR | O_CLOEXEC)
      try #require(holder >= 0)
      defer { close(holder) }
      try #require(flock(holder, LOCK_EX) == 0)
      let storing = try ThreadWork { try value.set(2) }
      // Waits until it has opened the file as well, which it cannot lock.
      while !storing.isOver, try descriptorCount(ofFileAt: lock) < 2 { sched_yield() }
      try FileManager.default.removeItem(at: defaults.suiteDirectory)
      flock(holder, LOCK_UN)
      try storing.value()
      #expect(value.wrappedValue == 2)
    }

    @Test("Two Unicode forms of one accent are two keys")
    func accents() throws {
      let (composed, decomposed) = (try number("é"), try number("e\u{301}"))
      try composed.set(1)
      try decomposed.set(2)
      #expect(composed.wrappedValue == 1)
      #expect(try number("é").get() == 1)
      #expect(try number("e\u{301}").get() == 2)
    }

    @Test(
      "Each suite has a distinct file below the configuration directory, whatever its name", .ownThreads,
      arguments: [("a/../b", "c/../b"), ("é", "e\u{301}"), (".hidden", "%2Ehidden"), ("..", "%2E%2E")])
    func suiteNames(_ first: String, _ second: String) async {
      await #expect(processExitsWith: .success) { [first = first as String, second = second as String] in
        let home = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)")
        let configuration = home.appending(path: "a/b/configuration")
        setenv("XDG_CONFIG_HOME", configuration.path, 1)
        defer { try? FileManager.default.removeItem(at: home) }
        for (number, name) in [first, second, String(repeating: first, count: 200)].enumerated() {
          let storage = try #require(UserDefaults(suiteName: name))
          let value = StoredValue(wrappedValue: -1, key: "key", storage: storage)
          try #require(value.wrappedValue == -1)
          try value.set(number)
        }
        let names = try FileManager.default.contentsOfDirectory(atPath: configuration.path)
        try #require(names.count == 3)
        try #require(try FileManager.default.contentsOfDirectory(atPath: home.path) == ["a"])
      }
    }

    @Test("The standard user defaults use a directory named after the program", .ownThreads)
    func standard() async {
      await #expect(processExitsWith: .success) {
        let home = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)")
        setenv("XDG_CONFIG_HOME", home.path, 1)
        defer { try? FileManager.default.removeItem(at: home) }
        try StoredValue(wrappedValue: 0, key: "key").set(1)
        let name = ProcessInfo.processInfo.processName
        try #require(
          FileManager.default.fileExists(atPath: home.path + "/\(name)/Stockroom/StoredValues.json"))
      }
    }
  }
#endif
