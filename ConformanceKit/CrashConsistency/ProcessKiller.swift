#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import Foundation
import StockroomCore
import StockroomKitSupport

/// Kills processes at times that are derived from a seed: after some number of messages, plus up to twice the time
/// between two messages; or, while the engine is being opened, within 1.2 times the time that opening takes.
struct ProcessKiller {
  /// The phase in which a process is killed.
  enum KillPoint {
    /// Before it sends its first message.
    case opening
    /// After its first message, and no later than after this many messages.
    case working(limit: Int)
  }

  private var random: SeededRandom
  private var openingTime = Duration.milliseconds(2)
  private var stepTime = Duration.microseconds(300)

  init(seed: UInt64) { random = SeededRandom(seed: seed) }

  /// Has the process perform the work and kills it. Returns all messages that it sent. If the work was done before the
  /// kill, these are all messages of the work.
  ///
  /// - Parameter progress: Called for each message, because an engine may need long between two messages.
  /// - Throws: The error of the work, and ``WorkerProcess/Died`` if the process died in another way.
  mutating func kill<Work: WorkerTask>(
    _ worker: WorkerProcess, at point: KillPoint, of work: Work, noting progress: CheckProgress? = nil
  ) async throws -> [Work.Message] {
    try await worker.waitUntilReady()
    let (count, delay) = choose(point)
    let start = ContinuousClock.now
    var (first, last) = (start, start)
    var messages: [Work.Message] = []
    if count == 0 { kill(worker, after: delay) }
    do {
      for try await message in try worker.start(work) {
        messages.append(message)
        progress?.note()
        last = .now
        if messages.count == 1 { first = last }
        if messages.count == count { kill(worker, after: delay) }
        // On a machine that does not run the thread in time, the work must not fill the disk.
        if messages.count == count + Self.surplus { worker.kill() }
      }
    } catch let died as WorkerProcess.Died {
      guard died.ending == .killed(signal: SIGKILL) else { throw died }
    }
    if !messages.isEmpty { openingTime = (openingTime + (first - start)) / 2 }
    if messages.count > 1 { stepTime = (stepTime + (last - first) / (messages.count - 1)) / 2 }
    return messages
  }

  /// After how many messages the process is killed, and how long after the last of them.
  private mutating func choose(_ point: KillPoint) -> (messages: Int, delay: Duration) {
    let part = Double(random.next(upTo: 1_000)) / 1_000
    return switch point {
    case .opening: (0, openingTime * (part * 1.2))
    case .working(let limit): (1 + random.next(upTo: limit), stepTime * (part * 2))
    }
  }

  /// After how many more messages a process is killed that should have been killed before.
  private static let surplus = 1_000

  /// The delay is part of the experiment, so it does not depend on the cooperative pool, whose threads may be busy.
  private func kill(_ worker: WorkerProcess, after delay: Duration) {
    Thread.detachNewThread {
      Thread.sleep(forTimeInterval: delay.inSeconds)
      worker.kill()
    }
  }
}
