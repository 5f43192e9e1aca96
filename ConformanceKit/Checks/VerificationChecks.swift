#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// What verify() must not do: find corruption where there is none, change anything, or get in the way of others. That it finds
// corruption is in CorruptionChecks.

extension CheckDefinition {
  @CheckList static var verificationChecks: [CheckDefinition] {
    Check(
      .f2, "verification.of-what-is-whole",
      "verify() finds no corruption where there is none, whatever keys and values there are, and changes nothing",
      needs: .persistent
    ) { context in
      let engine = try await context.open()
      try await engine.verify()
      for (number, way) in (waysOfWriting + [wayOfImporting]).enumerated() {
        let some = AdversarialKeys.all.enumerated().filter { $0.offset % 5 == number % 5 }.map(\.element)
        let sizes = [0, 1, 100, 4_096, 70_000]
        try await way.write(
          engine, some.enumerated().map { ($1, noise(sizes[$0 % sizes.count], seed: UInt64($0))) })
        try await engine.verify()
        context.noteProgress()
      }
      try await engine.remove(keys: Array(try await engine.allKeys().prefix(20)))
      let before = try await engine.readAllEntries().sorted { $0.key < $1.key }
      try await letClockAdvance()
      try await engine.verify()
      context.noteProgress()
      let after = try await engine.readAllEntries().sorted { $0.key < $1.key }
      try expect(
        after.map(\.key), is: before.map(\.key), "the keys of readAllEntries() after verify(), sorted,")
      for (one, other) in zip(after, before) {
        let isSame =
          one.data == other.data && one.createdAt.isAbout(other.createdAt)
          && one.updatedAt.isAbout(other.updatedAt)
        try expect(isSame, "verify() changed the value or the times of \(one.key)")
      }
      try await engine.removeAllData()
      try await engine.verify()
    }
    Check(
      .c1, "verification.beside-writers",
      "verify() beside tasks that write finds no corruption, and undoes nothing that is acknowledged meanwhile"
    ) { context in
      let engine = try await context.open()
      let keys = keys(6)
      try await engine.write(keys.map { ($0, noise(2_000)) })
      let rounds = context.rounds(quick: 60, standard: 240, exhaustive: 3_000, of: "writes beside verify()")
      try await whileRunning {
        try await gather(0..<keys.count) { task in
          for round in rounds.share(of: task, among: keys.count) {
            let value = noise(2_000, seed: UInt64(100 + round))
            try await engine.write(value, key: keys[task])
            let new = key("new \(round)")
            try await engine.write(value, key: new)
            for _ in 0..<3 { await Task.yield() }
            try expect(
              try await engine.read(key: keys[task]) == value,
              "beside verify() a task did not read what it had written")
            try await engine.remove(key: new)
          }
        }
      } readers: { _ in
        try await engine.verify()
      }
      try expect(try await engine.keyCount(), is: keys.count, "keyCount() after writes beside verify()")
    }
  }
}
