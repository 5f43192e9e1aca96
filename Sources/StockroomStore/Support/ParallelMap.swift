import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Transforms many elements on all processors. The results are in the order of the elements.
///
/// An element is let go of as soon as it has been transformed, so that large ones and their results need not be in
/// memory together; for that, hand the array over with `consume`.
///
/// - Parameter minimum: Fewer elements than this are transformed one after the other, since it would cost more to
///   distribute them.
/// - Throws: what `transform` threw for the first of the elements for which it threw; `CancellationError`.
@concurrent func parallelMap<Element: Sendable, Transformed: Sendable>(
  _ elements: consuming [Element], minimum: Int = 64,
  _ transform: @escaping @Sendable (Element) throws -> Transformed
) async throws -> [Transformed] {
  let transform: @Sendable (Element) throws -> Transformed = { (element: Element) throws -> Transformed in
    try Task.checkCancellation()
    return try transform(element)
  }
  let workers = ProcessInfo.processInfo.activeProcessorCount
  let count = elements.count
  guard count >= minimum, workers > 1 else { return try elements.map(transform) }

  let portions = Portions(elements, count: workers * 8)
  elements = []
  let parts = await withTaskGroup { group in
    for _ in 0..<workers {
      group.addTask {
        var parts: [(index: Int, result: Result<[Transformed], any Error>)] = []
        while let (index, portion) = portions.next() {
          let result = Result { try portion.map(transform) }
          parts.append((index, result))
          if case .failure = result { portions.stop() }
        }
        return parts
      }
    }
    return await group.reduce(into: []) { $0 += $1 }.sorted { $0.index < $1.index }
  }
  var transformed: [Transformed] = []
  transformed.reserveCapacity(count)
  for part in parts { transformed += try part.result.get() }
  return transformed
}

/// An array in portions, which are taken one after the other.
private final class Portions<Element: Sendable>: Sendable {
  private let waiting: Guarded<(next: Int, portions: [[Element]])>

  init(_ elements: [Element], count: Int) {
    let size = (elements.count + count - 1) / count
    let portions = stride(from: 0, to: elements.count, by: size).map {
      Array(elements[$0..<min($0 + size, elements.count)])
    }
    waiting = Guarded((0, portions))
  }

  /// The next portion, to which nobody else has a reference any more.
  func next() -> (index: Int, elements: [Element])? {
    waiting.withLock { waiting in
      guard waiting.next < waiting.portions.count else { return nil }
      let index = waiting.next
      waiting.next += 1
      var portion: [Element] = []
      swap(&portion, &waiting.portions[index])
      return (index, portion)
    }
  }

  /// Gives out no more portions.
  func stop() { waiting.withLock { $0.next = $0.portions.count } }
}
