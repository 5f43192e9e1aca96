#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Large batches that change each key twice: an engine may perform their parts at the same time, or in another order.

/// Writes each key twice in one batch, half of the batch apart. Fails unless the second value is stored.
///
/// - Parameter version: The version of the first value; the second one has the next.
func expectLastToWin(
  in engine: EngineUnderTest, _ count: Int, _ way: WayOfWriting, version: Int
) async throws {
  let keys = keys((count + 1) / 2)
  let last = entries(keys, version: version + 1)
  try await way.write(engine, Array((entries(keys, version: version) + last).suffix(count)))
  do {
    try await expectStored(last, in: engine)
  } catch let violation as Violation {
    throw Violation("after \(way.name) that wrote each key twice, \(violation)", rule: violation.rule)
  }
}

/// Changes each key twice in one `apply(_:)`, half of the batch apart: a removal and a write, a write and a removal, or
/// two writes.
///
/// - Parameter version: The version of the first values; the second ones have the next.
/// - Throws: ``Violation`` of rule W5.
func expectOrderOfOperations(in engine: EngineUnderTest, _ count: Int, version: Int) async throws {
  let keys = keys((count + 1) / 2)
  let operations = (0..<2).flatMap { part in
    entries(keys, version: version + part).enumerated().map { number, entry -> StorageOperation in
      number % 3 == part ? .remove(key: entry.key) : .write(entry.data, key: entry.key)
    }
  }
  try await engine.apply(Array(operations.suffix(count)))
  let removed = keys.enumerated().filter { $0.offset % 3 == 1 }.map(\.element)
  let written = keys.enumerated().filter { $0.offset % 3 != 1 }.map(\.element)
  do {
    try await expectStored(entries(written, version: version + 1), absent: removed, in: engine)
  } catch let violation as Violation {
    throw Violation("after an apply(_:) that changed each key twice, \(violation)", rule: .w5)
  }
}
