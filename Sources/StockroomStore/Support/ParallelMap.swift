#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What `transform` makes of each element, in their order, worked out on all processors and on no actor.
///
/// Few elements are done by one task, since more would cost more than they save.
///
/// - Throws: what `transform` throws for the first of the elements that fail; `CancellationError` if the task is
///   cancelled meanwhile.
@concurrent func parallelMap<Element: Sendable, Output: Sendable>(
  _ elements: [Element], _ transform: @escaping @Sendable (Element) throws -> Output
) async throws -> [Output] {
  let workers = ProcessInfo.processInfo.activeProcessorCount
  guard elements.count >= 64, workers > 1 else { return try serialMap(elements[...], transform) }

  // Several chunks for each worker, so that none is left alone with the expensive elements.
  let chunkSize = min(max(elements.count / (workers * 8), 16), 1024)
  let starts = Array(stride(from: 0, to: elements.count, by: chunkSize))
  var remaining = starts.enumerated().makeIterator()
  var chunks = [Result<[Output], any Error>?](repeating: nil, count: starts.count)

  await withTaskGroup(of: (index: Int, outputs: Result<[Output], any Error>).self) { group in
    func startNext() {
      guard let (index, start) = remaining.next() else { return }
      let chunk = elements[start..<min(start + chunkSize, elements.count)]
      group.addTask { (index, Result { try serialMap(chunk, transform) }) }
    }

    for _ in 0..<workers { startNext() }
    var hasFailed = false
    for await (index, outputs) in group {
      chunks[index] = outputs
      if case .failure = outputs { hasFailed = true }
      // Chunks start in order: all that come before one that failed are done or under way, and may fail first.
      if !hasFailed { startNext() }
    }
  }

  var outputs: [Output] = []
  outputs.reserveCapacity(elements.count)
  for case let chunk? in chunks { try outputs += chunk.get() }
  return outputs
}

private func serialMap<Element, Output>(
  _ elements: ArraySlice<Element>, _ transform: (Element) throws -> Output
) throws -> [Output] {
  try elements.map { element in
    try Task.checkCancellation()
    return try transform(element)
  }
}
