#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Read once, since on Linux each call of `activeProcessorCount` reads files.
private let processors = ProcessInfo.processInfo.activeProcessorCount

/// Transforms elements in parallel. The results are in the order of the elements.
///
/// - Throws: the error of the first element, in order, for which `transform` threw; `CancellationError`.
@concurrent func parallelMap<Element: Sendable, Transformed: Sendable>(
  _ elements: consuming [Element], _ transform: @escaping @Sendable (Element) throws -> Transformed
) async throws -> [Transformed] {
  var all: [Transformed] = []
  all.reserveCapacity(elements.count)
  try await transformPortions(of: elements) { portion in
    try portion.map { element in
      try Task.checkCancellation()
      return try transform(element)
    }
  } receive: {
    all += $0
  }
  return all
}

/// Transforms elements in parallel, in portions, and calls `receive` with the results in the order of the elements.
///
/// A portion is released when it has been transformed, so that large elements and their results are not all in memory at
/// the same time, if the array is passed with `consume`.
///
/// - Parameter minimum: Fewer elements than this are transformed in one portion by the caller's task, since that is faster.
/// - Throws: the error of the first portion, in order, for which `transform` threw; what `receive` threw; `CancellationError`.
@concurrent func transformPortions<Element: Sendable, Transformed: Sendable>(
  of elements: consuming [Element], minimum: Int = 64,
  _ transform: @escaping @Sendable ([Element]) throws -> Transformed,
  receive: (Transformed) async throws -> Void
) async throws {
  try Task.checkCancellation()
  guard elements.count >= minimum, processors > 1 else {
    return try await receive(transform(elements))
  }
  var portions = split(elements, into: processors * 16)
  elements = []
  try await withThrowingTaskGroup(of: (index: Int, result: Result<Transformed, any Error>).self) { group in
    func startNext() {
      guard let portion = portions.popLast() else { return }
      group.addTask { (portion.index, Result { try transform(portion.elements) }) }
    }

    // One more than there are processors, so that none is idle while results are received.
    for _ in 0...processors { startNext() }
    var results: [Int: Result<Transformed, any Error>] = [:]
    var next = 0
    while let (index, result) = try await group.next() {
      results[index] = result
      startNext()
      while let result = results.removeValue(forKey: next) {
        // Throwing ends the group, which cancels its tasks.
        try await receive(result.get())
        next += 1
      }
    }
  }
}

/// The elements in at most `count` portions of equal size, with their numbers. The portions are in reverse order, to be
/// taken from the end.
private func split<Element>(
  _ elements: [Element], into count: Int
) -> [(index: Int, elements: [Element])] {
  let size = (elements.count + count - 1) / count
  return stride(from: 0, to: elements.count, by: size).enumerated().reversed().map { index, start in
    (index, Array(elements[start..<min(start + size, elements.count)]))
  }
}
