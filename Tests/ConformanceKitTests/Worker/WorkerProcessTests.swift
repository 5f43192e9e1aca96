import Foundation
import FaultyEngineWorker
import StockroomCore
import StockroomKitSupport
import TestFixtures
import Testing

@testable import ConformanceKit

@Suite("A worker process", .timeLimit(.minutes(60)))
struct WorkerProcessTests {
  private let good = ConformanceWorker(product: "FaultyEngineWorker", arguments: ["shared"])

  private static func shell(_ script: String) -> ConformanceWorker {
    ConformanceWorker(executable: URL(filePath: "/bin/sh"), arguments: ["-c", script])
  }

  @Test("A missing program is an error that names it")
  func noSuchProgram() throws {
    let error = #expect(throws: StorageError.self) {
      try WorkerProcess(ConformanceWorker(product: "no-such-worker"))
    }
    #expect(error?.code == .io)
    #expect(error?.message.contains("no-such-worker could not be started") == true)
  }

  @Test(
    "A program that is not a worker is distinguished from an engine that fails",
    arguments: [
      ("echo Hello; sleep 60", #"wrote "Hello""#),
      ("true", "exited with status 0, before it accepted requests"),
      (
        "echo Trouble >&2; exit 3",
        "exited with status 3 after writing to standard error: Trouble, before it accepted requests"
      ),
      ("kill -9 $$", "was ended by signal 9, before it accepted requests"),
      ("exec 0<&-; echo conformance worker 3; echo Nonsense; sleep 60", #"wrote "Nonsense""#),
    ])
  func noWorker(script: String, what: String) async throws {
    let process = try WorkerProcess(Self.shell(script))
    let error = await #expect(throws: WorkerProcess.ProtocolError.self) {
      try await process.perform(ReadEverything(place: URL(filePath: "/")))
    }
    #expect(error?.description.contains(what) == true, "\(String(describing: error))")
    process.kill()
    await process.waitUntilEnd()
  }

  @Test("A check whose program is not a worker could not run, and says so")
  func checkWithoutWorker() async throws {
    let suite = ConformanceSuite("", capabilities: .persistent, worker: Self.shell("echo Hello")) { _ in
      try CrashFaultEngine(directory: FileManager.default.temporaryDirectory)
    }
    let check = try #require(suite.checks.first { $0.id == "killed.while-opening" })
    guard case .couldNotRun(let actual) = await check.outcome() else {
      Issue.record("The check was made.")
      return
    }
    // Whether it has ended before the request is unspecified.
    #expect(actual.contains(#"wrote "Hello""#) || actual.contains("ended"), "\(actual)")
  }

  #if os(Linux)
    @Test("A program with the thread sanitizer gets no fake clock")
    func noFakeClockWithSanitizer() {
      let skip = #expect(throws: Skip.self) { try FakeClock.tool(hasThreadSanitizer: true) }
      #expect(skip?.reason.contains("thread sanitizer") == true)
    }

    @Test(
      "A process that does not start with a fake clock fails no engine",
      .disabled(if: System.hasThreadSanitizer))
    func noFakeClock() async throws {
      let suite = ConformanceSuite(
        "", capabilities: .persistent, stallTimeout: .seconds(20), worker: Self.shell("exec sleep 600")
      ) { _ in try CrashFaultEngine(directory: FileManager.default.temporaryDirectory) }
      let check = try #require(suite.checks.first { $0.id == "clock.set-back" })
      guard case .skipped(let reason) = await check.outcome() else {
        Issue.record("The check was made.")
        return
      }
      #expect(reason.contains("fake clock"))
    }

    @Test(
      "If a process cannot start with the fake clock, the check retries with another process",
      .disabled(if: System.hasThreadSanitizer))
    func fakeClockAgain() async throws {
      try await withDirectory { directory in
        let mark = directory.appending(path: "tried").systemPath
        let script =
          "if [ -e '\(mark)' ]; then exec '\(good.executable.systemPath)' shared; fi; touch '\(mark)'; "
          + "echo 'faketime: sem_open: File exists' >&2; exit 1"
        let suite = ConformanceSuite(
          "", capabilities: .persistent, workingDirectory: directory, worker: Self.shell(script)
        ) { try CrashFaultEngine(directory: $0) }
        let check = try #require(suite.checks.first { $0.id == "clock.set-back" })
        #expect(await check.outcome() == .passed)
      }
    }
  #endif

  @Test("The error of a task arrives, and the next task runs")
  func throwing() async throws {
    try await withDirectory { directory in
      let worker = try WorkerProcess(good)
      let error = await #expect(throws: WorkerError.self) {
        try await worker.perform(CallEngine(.read, at: directory))
      }
      #expect(error?.code == "closed")
      try await worker.perform(CallEngine(.open, at: directory))
      #expect(try await worker.perform(CallEngine(.read, at: directory)).flatMap { $0 }.isEmpty)
    }
  }

  @Test("An unknown request to the worker is answered")
  func unknownRequest() async throws {
    struct Undelivered: WorkerTask {
      func run(
        makeEngine: @Sendable (URL) async throws -> any StorageEngine, send: @Sendable (Int) throws -> Void
      ) async throws {}
    }
    let error = await #expect(throws: WorkerError.self) {
      try await WorkerProcess(good).perform(Undelivered())
    }
    #expect(error?.code == "unsupported")
  }

  @Test("A task that traps ends the worker only, and the tail of its standard error is reported")
  func trapping() async throws {
    try await withDirectory { directory in
      let worker = try WorkerProcess(
        ConformanceWorker(product: "FaultyEngineWorker", arguments: ["trapsWhenOpened"]))
      let died = await #expect(throws: WorkerProcess.Died.self) {
        try await worker.perform(CallEngine(.open, at: directory))
      }
      #expect(died?.ending == .killed(signal: SIGILL) || died?.ending == .killed(signal: SIGTRAP))
      #expect(died?.stderrTail.contains("These are the last words.") == true)
      #expect((died?.stderrTail.utf8.count ?? 0) <= 600)
      // A process that has ended still accepts these calls.
      await #expect(throws: WorkerProcess.Died.self) {
        try await worker.perform(CallEngine(.open, at: directory))
      }
      worker.kill()
    }
  }

  @Test("Long requests and long messages arrive complete")
  func longMessages() async throws {
    try await withDirectory { directory in
      let worker = try WorkerProcess(good)
      let values = (0..<3).map { noise(5 << 20, seed: UInt64($0)) }
      try await worker.perform(CallEngine(.open, at: directory))
      let entries = values.enumerated().map { SharedWork.Entry(key: "\($0.offset)", data: $0.element) }
      try await worker.perform(CallEngine(.write(entries), at: directory))
      let found = try await worker.perform(CallEngine(.read, at: directory)).flatMap { $0 }
      let isSame = found.map(\.data) == values
      #expect(isSame)
    }
  }

  @Test("Several workers run at the same time")
  func several() async throws {
    try await withDirectory { directory in
      try await gather(0..<6) { number in
        let worker = try WorkerProcess(good)
        try await worker.perform(CallEngine(.open, at: directory))
        try await worker.perform(
          CallEngine(.work(SharedWork(batchCount: 10), share: "worker \(number)"), at: directory))
      }
      let worker = try WorkerProcess(good)
      let found = try await worker.perform(ReadEverything(place: directory)).flatMap { $0 }.map(\.entry)
      try SharedWork(batchCount: 10).verify(found, by: (0..<6).map { "worker \($0)" }, isAtomic: true)
    }
  }

  @Test("A worker ends when its standard input ends, even in the middle of a task")
  func closingInput() async throws {
    try await withDirectory { directory in
      let worker = try WorkerProcess(good)
      let steps = NumberedSteps(batches: NumberedBatches(seed: 1), kind: .single)
      let died = await #expect(throws: WorkerProcess.Died.self) {
        for try await number in try worker.start(WriteSteps(place: directory, steps: steps, first: 1))
        where number == 3 {
          worker.closeInput()
        }
      }
      #expect(died?.ending == .exited(status: 0))
    }
  }

  @Test("A worker ends with its parent", .ownThreads)
  func orphans() async throws {
    try await withDirectory { directory in
      let path = directory.path(percentEncoded: false)
      await #expect(processExitsWith: .exitCode(7)) { [path = path as String] in
        let worker = try WorkerProcess(ConformanceWorker(product: "FaultyEngineWorker"))
        try await worker.perform(CallEngine(.open, at: URL(filePath: path)))
        exit(7)
      }
      // The place is locked for as long as the worker runs.
      var engine: CrashFaultEngine?
      while engine == nil {
        do {
          engine = try CrashFaultEngine(directory: directory)
        } catch let error as StorageError where error.code == .locked {
          try await Task.sleep(for: .milliseconds(1))
        }
      }
    }
  }

  @Test("A cancelled task does not report that the worker died")
  func cancelled() async throws {
    try await withDirectory { directory in
      let worker = try WorkerProcess(good)
      let work = Task {
        withUnsafeCurrentTask { $0?.cancel() }
        try await worker.perform(CallEngine(.open, at: directory))
      }
      await #expect(throws: CancellationError.self) { try await work.value }
    }
  }

  #if os(Linux)
    @Test("Child processes are killed with their process")
    func killsGroup() async throws {
      let (output, continuation) = AsyncStream<Data>.makeStream()
      let process = try SystemProcess(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"]) { event in
        if case .output(let bytes) = event { continuation.yield(bytes) }
      }
      var iterator = output.makeAsyncIterator()
      let line = String(decoding: try #require(await iterator.next()), as: UTF8.self)
      let started = try #require(Int32(line.trimmingCharacters(in: .whitespacesAndNewlines)))
      process.kill()
      // It does not exist, or is a zombie that has not been reaped yet.
      func isRunning() -> Bool {
        let status = try? String(contentsOfFile: "/proc/\(started)/stat", encoding: .utf8)
        return status.map { !$0.contains(") Z ") } ?? false
      }
      while isRunning() { try await Task.sleep(for: .milliseconds(1)) }
    }

    @Test("Five hundred workers leave no descriptor, no thread and no zombie behind", .ownThreads)
    func leaks() async throws {
      // In a separate process, where nothing else opens files.
      await #expect(processExitsWith: .success) {
        func count(_ what: String) throws -> Int {
          try FileManager.default.contentsOfDirectory(atPath: "/proc/self/\(what)").count
        }
        let worker = ConformanceWorker(executable: URL(filePath: "/bin/sh"), arguments: ["-c", "read line"])
        func start(_ number: Int) async throws {
          let process = try WorkerProcess(worker)
          if number.isMultiple(of: 2) { process.kill() } else { process.closeInput() }
          await process.waitUntilEnd()
        }
        try await start(0)
        let (files, threads) = (try count("fd"), try count("task"))
        for number in 1...500 { try await start(number) }
        // The last threads may still be ending.
        for _ in 0..<20_000 where try count("task") > threads + 2 { usleep(1_000) }
        #expect(try count("fd") <= files + 3)
        #expect(try count("task") <= threads + 2)
        #expect(waitpid(-1, nil, WNOHANG) == -1 && errno == ECHILD)
      }
    }
  #endif

  private func withDirectory(_ body: (URL) async throws -> Void) async throws {
    let directory = FileManager.default.temporaryDirectory.appending(
      path: "workers-\(UUID().uuidString)", directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    try await body(directory)
  }
}
