import ConformanceKit
import StockroomCore

extension ReferenceStore {
  /// Items in order, found by their keys.
  struct Table {
    private(set) var items: [CheckedItem] = []
    private var keys: [CacheKey] = []
    private var positions: [CacheKey: Int] = [:]

    subscript(key: CacheKey) -> CheckedItem? { positions[key].map { items[$0] } }

    mutating func append(_ item: CheckedItem, for key: CacheKey) {
      positions[key] = items.count
      items.append(item)
      keys.append(key)
    }

    mutating func insert(_ item: CheckedItem, for key: CacheKey) {
      if let position = positions[key] { items[position] = item } else { append(item, for: key) }
    }

    mutating func remove(_ removed: [CacheKey]) {
      let removed = Set(removed)
      let rest = zip(keys, items).filter { !removed.contains($0.0) }
      self = Table()
      for (key, item) in rest { append(item, for: key) }
    }
  }

  /// Work that is done once, unless it fails.
  @MainActor
  final class Once {
    private let work: @MainActor @Sendable () async throws -> Void
    private var attempt: Task<Void, any Error>?
    private var isDone = false

    init(_ work: @escaping @MainActor @Sendable () async throws -> Void) { self.work = work }

    /// Also does the work if it is already in progress.
    func runUnlessDone() async throws {
      if isDone { return }
      try await work()
      isDone = true
    }

    func run() async throws {
      let attempt = attempt ?? Task { try await work() }
      self.attempt = attempt
      do {
        try await attempt.value
      } catch {
        if self.attempt == attempt { self.attempt = nil }
        throw error
      }
    }
  }
}
