import Dispatch
import StockroomCore

// What layers do with the values of many entries (rules C4, C5).

extension StorageLayer {
  /// What `transform` returns for each element, with a turn for others in between.
  func mapping<Element, Mapped>(
    _ elements: [Element], _ transform: (Element) throws -> Mapped
  ) async throws -> [Mapped] {
    var timer = YieldTimer()
    var mapped: [Mapped] = []
    mapped.reserveCapacity(elements.count)
    for element in elements {
      if timer.isDue { try await timer.yield() }
      mapped.append(try transform(element))
    }
    return mapped
  }

  /// What `transform` returns for each element: for one that takes long on another thread, where it does not hold up a thread of the
  /// cooperative pool.
  func mapping<Element: Sendable, Mapped: Sendable>(
    _ elements: [Element], isLong: (Element) -> Bool,
    _ transform: @escaping @Sendable (Element) throws -> Mapped
  ) async throws -> [Mapped] {
    guard elements.contains(where: isLong) else { return try await mapping(elements, transform) }
    var timer = YieldTimer()
    var mapped: [Mapped] = []
    mapped.reserveCapacity(elements.count)
    for element in elements {
      if timer.isDue { try await timer.yield() }
      mapped.append(
        isLong(element) ? try await onAnotherThread { try transform(element) } : try transform(element))
    }
    return mapped
  }

  func onAnotherThread<Result: Sendable>(_ work: @escaping @Sendable () throws -> Result) async throws
    -> Result
  {
    try await ThreadResult.wait { finish in
      DispatchQueue.global().async { finish(Swift.Result { try work() }) }
    }
  }
}
