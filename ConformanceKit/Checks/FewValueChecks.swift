#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Batches of a few large values: rule W1. Batches of many values are in ByteSizeChecks.

extension CheckDefinition {
  @CheckList static var fewValueChecks: [CheckDefinition] {
    Check(
      .w1, "sizes.bytes-of-few-values",
      "a batch of two, three or four values with a total of 4, 16 or 64 MiB, or slightly less, stores all of "
        + "them",
      from: .standard
    ) { context in
      let engine = try await context.open()
      let batches = FewValues.all(context.budget.level)
      let numbers = context.rounds(
        quick: 0, standard: batches.count, exhaustive: batches.count, of: "batches of a few large values")
      for number in numbers { try await batches[number].check(engine, removes: !number.isMultiple(of: 2)) }
      // Removes the large entries, because the entries that a check leaves are then compared across all methods.
      try await engine.removeAllData()
    }
  }
}

/// Values that fill a log, a log page or a message of a common size, with and without the bytes that an engine stores
/// beside them.
private struct FewValues {
  let count: Int
  /// The total number of bytes.
  let bytes: Int
  let way: WayOfWriting

  /// Small ones first, since a slow engine does not get far.
  static func all(_ level: ConformanceBudget.Level) -> [FewValues] {
    let (write, apply) = (wayOfBatches, wayOfApplying)
    let below = [4 << 20, 16 << 20, 64 << 20].flatMap { size in
      [
        FewValues(count: 2, bytes: size - 16, way: write), FewValues(count: 3, bytes: size - 16, way: apply),
      ]
    }
    let sizes =
      level == .exhaustive ? [1 << 20, 4 << 20, 16 << 20, 64 << 20, 128 << 20] : [4 << 20, 16 << 20]
    let others = sizes.flatMap { size in
      [
        FewValues(count: 2, bytes: size, way: apply), FewValues(count: 3, bytes: size, way: write),
        FewValues(count: 4, bytes: size - 16, way: write),
      ]
    }
    return (below + others).sorted { $0.bytes < $1.bytes }
  }

  /// Overwrites the existing entries with these values, and reads them.
  ///
  /// - Parameter removes: Whether to remove them at the end, or to leave them for the next batch.
  func check(_ engine: EngineUnderTest, removes: Bool) async throws {
    let what = "with \(count) values of \(bytes) bytes together"
    let keys = keys(count, prefix: "large-")
    let batch = keys.enumerated().map { number, key in
      let size = bytes * (number + 1) / count - bytes * number / count
      return (key: key, data: noise(size, seed: UInt64(bytes + number)))
    }
    do {
      try await way.write(engine, batch)
      for entry in batch {
        let found = try await engine.read(key: entry.key)
        try expect(
          found == entry.data,
          "\(what), read(key:) of \(entry.key) did not return the \(entry.data.count) bytes that \(way.name) had "
            + "stored, but \(found.map { "\($0.count) bytes" } ?? "nil")")
      }
      if !removes { return }
      try await engine.remove(keys: keys)
      for key in keys {
        try expect(
          try await engine.read(key: key), is: nil, "\(what), read(key:) of \(key), which was removed,")
      }
    } catch let failure as CallFailure {
      throw Violation("\(what), \(failure)")
    }
  }
}
