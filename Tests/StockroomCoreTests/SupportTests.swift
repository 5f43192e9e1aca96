import Foundation
import StockroomCore
import Synchronization
import Testing

extension Gate {
  /// Whether the gate admits calls.
  fileprivate var isOpen: Bool {
    do { try enter() } catch { return false }
    leave()
    return true
  }
}

private struct Refused: Error {}

@Suite struct GroupCommitterTests {
  @Test("Every submission is committed once, in groups when many arrive together")
  func groups() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let groups = MutexProtected<[[Int]]>([])
    let committer = GroupCommitter<Int>(on: thread) { group in groups.withLock { $0.append(group) } }
    let isReleased = DispatchSemaphore(value: 0)
    try thread.enqueue { isReleased.wait() }
    let submissions = (0..<64).map { number in Task { try await committer.submit(number) } }
    isReleased.signal()
    for submission in submissions { try await submission.value }
    #expect(groups.withLock { $0.joined().sorted() } == Array(0..<64))
  }

  @Test("A group that waits for the lock of another process waits once, not once per request")
  func locked() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let attempts = MutexProtected<[[Int]]>([])
    let committer = GroupCommitter<Int>(on: thread) { group in
      attempts.withLock { $0.append(group) }
      throw StorageError(.locked, "Somebody else writes.")
    }
    let isReleased = DispatchSemaphore(value: 0)
    try thread.enqueue { isReleased.wait() }
    let submissions = (0..<64).map { number in
      Task { try? await committer.submit(number) == () }
    }
    isReleased.signal()
    for submission in submissions { #expect(await submission.value == nil) }
    #expect(attempts.withLock { $0.joined().sorted() } == Array(0..<64))
  }

  @Test("A request that cannot be committed fails no other request")
  func failure() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let committed = MutexProtected<[Int]>([])
    let committer = GroupCommitter<Int>(on: thread) { group in
      if group.contains(13) { throw Refused() }
      committed.withLock { $0 += group }
    }
    let submissions = (0..<64).map { number in Task { try await committer.submit(number) } }
    for (number, submission) in submissions.enumerated() {
      let isRefused = await submission.result.isFailure
      #expect(isRefused == (number == 13))
    }
    #expect(committed.withLock { $0.sorted() } == (0..<64).filter { $0 != 13 })
  }

  @Test("A group that throws after it has been committed is not committed again, and each request fails")
  func failureAfterCommit() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let committed = MutexProtected<[Int]>([])
    let committer = GroupCommitter<Int>(on: thread) { group in
      committed.withLock { $0 += group }
      throw AfterCommitError(Refused())
    }
    let isReleased = DispatchSemaphore(value: 0)
    try thread.enqueue { isReleased.wait() }
    let submissions = (0..<64).map { number in Task { try await committer.submit(number) } }
    isReleased.signal()
    for submission in submissions {
      await #expect(throws: Refused.self) { try await submission.value }
    }
    #expect(committed.withLock { $0.sorted() } == Array(0..<64))
  }

  @Test("A cancelled task submits nothing")
  func cancellation() async {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let committed = MutexProtected(0)
    let committer = GroupCommitter<Int>(on: thread) { _ in committed.withLock { $0 += 1 } }
    let task = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await committer.submit(1)
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(committed.withLock { $0 } == 0)
  }

  @Test("After the thread has stopped, submissions are refused at once")
  func stopped() async {
    let thread = DedicatedThread()
    let committer = GroupCommitter<Int>(on: thread) { _ in }
    thread.stop()
    let error = await #expect(throws: StorageError.self) { try await committer.submit(1) }
    #expect(error?.code == .closed)
  }
}

@Suite struct DedicatedThreadTests {
  @Test("Stopping the thread first runs the waiting jobs")
  func stop() throws {
    let thread = DedicatedThread()
    let done = MutexProtected(0)
    for _ in 0..<100 { try thread.enqueue { done.withLock { $0 += 1 } } }
    thread.stop()
    #expect(done.withLock { $0 } == 100)
    #expect(throws: StorageError.self) { try thread.enqueue {} }
    thread.stop()
  }

  @Test("A job may stop its own thread")
  func stopFromWithin() async throws {
    let thread = DedicatedThread()
    try await thread.run { thread.stop() }
    await #expect(throws: StorageError.self) { try await thread.run {} }
  }

  @Test("An error thrown by a job is thrown to its caller")
  func failure() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    await #expect(throws: Refused.self) { try await thread.run { throw Refused() } }
    #expect(try await thread.run { 7 } == 7)
  }
}

@Suite struct ThreadResultTests {
  @Test("A result that is set before the task waits is returned without a race")
  func finishedFirst() async throws {
    for count in 1...20 {
      let numbers = try await ThreadResult<[Int]>.wait { finish in
        // Relaxed, so that only the result itself orders the accesses of the threads.
        let hasFinished = Atomic(false)
        Thread.detachNewThread {
          finish(.success((0..<count).map { $0 }))
          hasFinished.store(true, ordering: .relaxed)
        }
        while !hasFinished.load(ordering: .relaxed) { sched_yield() }
      }
      #expect(numbers.reduce(0, +) == count * (count - 1) / 2)
    }
  }
}

@Suite struct GateTests {
  /// The order of the events.
  private final class Journal: Sendable {
    let lines = MutexProtected<[String]>([])
    func note(_ line: String) { lines.withLock { $0.append(line) } }
  }

  @Test("Closing waits for the calls in progress, and a second close waits for the first")
  func close() async throws {
    let gate = Gate(path: "/somewhere")
    let journal = Journal()
    try gate.enter()
    let closers = (0..<3).map { _ in
      Task {
        try await gate.close { journal.note("released") }
        journal.note("closed")
      }
    }
    while gate.isOpen { await Task.yield() }
    journal.note("left")
    gate.leave()
    for closer in closers { try await closer.value }
    #expect(journal.lines.withLock { $0 } == ["left", "released", "closed", "closed", "closed"])

    let error = #expect(throws: StorageError.self) { try gate.enter() }
    #expect(error?.code == .closed)
    #expect(error?.message.contains("/somewhere") == true)
  }

  @Test("A failed release throws to the first caller, and the gate is still closed")
  func failure() async throws {
    let gate = Gate(path: "/somewhere")
    await #expect(throws: Refused.self) { try await gate.close { throw Refused() } }
    try await gate.close {}
    #expect(throws: StorageError.self) { try gate.enter() }
  }
}

@Suite struct SingleFlightTests {
  private final class Token: Sendable {}

  @Test("Values captured by the work are released before its caller resumes")
  func release() async throws {
    let flight = SingleFlight<Void>()
    for _ in 0..<500 {
      weak var probe: Token?
      do {
        let token = Token()
        probe = token
        try await flight.value { withExtendedLifetime(token) {} }
      }
      #expect(probe == nil)
    }
  }
}

@Suite struct TimestampTests {
  @Test("A date becomes a timestamp with the same date, whatever its nanoseconds")
  func dates() {
    var random = SystemRandomNumberGenerator()
    for exponent in 0..<62 {
      for _ in 0..<100 {
        let distance = Int64.random(in: 0...(1 << exponent), using: &random)
        // Around 1970 and around 2001, where dates are most precise.
        for nanoseconds in [distance, -distance, 978_307_200_000_000_000 - distance / 2] {
          let date = Timestamp(nanoseconds: nanoseconds).date
          #expect(Timestamp(date).date == date)
        }
      }
    }
    for date in [Date(), Date(timeIntervalSince1970: 0), Date(timeIntervalSinceReferenceDate: -0.5)] {
      #expect(Timestamp(date).date == date)
    }
  }

  @Test("A system time out of range becomes the first or the last time that can be stored")
  func impossibleTimes() {
    #expect(Timestamp(clamping: timespec(tv_sec: 1, tv_nsec: 5)).nanoseconds == 1_000_000_005)
    #expect(Timestamp(clamping: timespec(tv_sec: 9_223_372_036, tv_nsec: 999_999_999)).nanoseconds == .max)
    #expect(Timestamp(clamping: timespec(tv_sec: 100_000_000_000, tv_nsec: 0)).nanoseconds == .max)
    #expect(Timestamp(clamping: timespec(tv_sec: -100_000_000_000, tv_nsec: 0)).nanoseconds == .min)
  }

  @Test("A date that is out of range or not a number becomes one that can be stored")
  func impossibleDates() {
    let first = Timestamp(nanoseconds: -(1 << 62))
    let last = Timestamp(nanoseconds: (1 << 62) - 1)
    #expect(
      [.distantPast, Date(timeIntervalSinceReferenceDate: -.infinity)].allSatisfy { Timestamp($0) == first })
    #expect(
      [.distantFuture, Date(timeIntervalSinceReferenceDate: .infinity)].allSatisfy { Timestamp($0) == last })
    #expect(
      Timestamp(Date(timeIntervalSinceReferenceDate: .nan)).date == Date(timeIntervalSinceReferenceDate: 0))
    let entry = StorageEntry(
      key: CacheKey("a"), data: Data(), createdAt: .distantFuture, updatedAt: Date(timeIntervalSince1970: 1))
    #expect(EntryTimes(entry).createdAt == EntryTimes(entry).updatedAt)
    #expect(EntryTimes(entry).updatedAt == Timestamp(nanoseconds: 1_000_000_000))
  }

  @Test("A timestamp and its date agree to the microsecond")
  func date() {
    let before = Date()
    let now = Timestamp.now().date
    #expect(before.addingTimeInterval(-1e-6) <= now && now <= Date().addingTimeInterval(1e-6))
    #expect(Timestamp(nanoseconds: 0).date == Date(timeIntervalSince1970: 0))
    #expect(Timestamp(nanoseconds: 978_307_200_500_000_000).date == Date(timeIntervalSinceReferenceDate: 0.5))
  }

  @Test("A header is restored from its bytes, and keeps time from moving backwards")
  func header() throws {
    var header = EntryHeader(createdAt: Timestamp(nanoseconds: 100), sequence: .max)
    header.overwrite(at: Timestamp(nanoseconds: 50))
    #expect(header.updatedAt == Timestamp(nanoseconds: 100))
    header.overwrite(at: Timestamp(nanoseconds: 150))
    var bytes = [UInt8](repeating: 0, count: EntryHeader.encodedSize)
    bytes.withUnsafeMutableBytes { header.encode(into: $0) }
    #expect(bytes.withUnsafeBytes { EntryHeader(decoding: $0) } == header)
    #expect(bytes.dropLast().withUnsafeBytes { EntryHeader(decoding: $0) } == nil)
  }
}

extension Result {
  fileprivate var isFailure: Bool {
    if case .failure = self { true } else { false }
  }
}

@Suite struct FileDescriptorTests {
  @Test("More bytes than fit into memory are refused, whatever their file has")
  func moreThanMemory() throws {
    let file = try FileDescriptor.makeNamelessFile()
    try [UInt8](1...3).withUnsafeBytes { try file.write($0) }
    for count in [1 << 50, Int.max] {
      let error = #expect(throws: StorageError.self) { try file.readBytes(count) }
      #expect(error?.code == .io)
    }
    #expect(try file.readBytes(1 << 25) == [1, 2, 3])
  }
}
