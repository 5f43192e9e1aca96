#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore
import StockroomKitSupport

/// Kills processes at moments that follow from a seed: after some number of messages, and then after a part
/// of the time between two messages.
struct ProcessKiller {
  /// The phase in which a process is killed.
  enum KillPoint {
    /// Of what it does before its first message.
    case opening
    /// Of what it does after that, and no later than after so many messages.
    case working(limit: Int)
  }

  private var random: SeededRandom
  private var openingTime = Duration.milliseconds(2)
  private var stepTime = Duration.microseconds(300)

  init(seed: UInt64) { random = SeededRandom(seed: seed) }

  /// Has the process perform the work and kills it. Returns all messages that it sent; if the work was done
  /// before, those of the whole work.
  ///
  /// - Parameter progress: Takes note of each message: an engine may need long for what is between two of them.
  /// - Throws: What the work throws, and ``WorkerProcess/Died`` if the process died in another way.
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

  private func kill(_ worker: WorkerProcess, after delay: Duration) {
    Task { @concurrent in
      // The delay is part of the experiment. That it may be cut short does not matter.
      try? await Task.sleep(for: delay)
      worker.kill()
    }
  }
}
