import ConformanceKit
import Foundation
import StockroomCore
import Testing

@Suite struct TempProfile {
  @Test func profile() async throws {
    let clock = ContinuousClock()
    var totals: [String: Double] = [:]
    func write(_ s: String) { FileHandle.standardError.write(Data((s + "\n").utf8)) }
    let start = clock.now
    var convicted: [String: [String]] = [:]
    let only = ProcessInfo.processInfo.environment["ONLY"].flatMap { Int($0) } ?? 0
    for piece in MuseumPiece.all.dropFirst(only * 40).prefix(40) {
      let begin = clock.now
      var failures: [ConformanceFailure] = []
      for check in piece.checks {
        let t = clock.now
        if let failure = await check.outcome().failure {
          failures.append(failure); convicted[check.id, default: []].append(piece.name)
        }
        let s = (clock.now - t) / .seconds(1)
        totals[check.id, default: 0] += s
        if s > 1 { write("SLOW \(piece.testDescription) \(check.id) \(s)") }
      }
      let ok = failures.contains { $0.rule == piece.rule }
      let other = Set(failures.map(\.rule)).subtracting([piece.rule])
      let lax = piece.also.subtracting(other)
      write(
        "PIECE \((clock.now - begin) / .seconds(1)) \(ok ? "ok" : "NOT CONVICTED") \(piece.testDescription) other \(other.map(\.rawValue).sorted()) lax \(lax.map(\.rawValue).sorted())"
      )
      for f in failures where f.rule != piece.rule && !piece.also.contains(f.rule) {
        write("   UNJUSTIFIED \(f.rule) \(f.check): \(f.happened.prefix(200))")
      }
    }
    for piece in StoreMuseumPiece.all {
      for check in piece.checks {
        if await check.outcome().failure != nil {
          convicted[check.id, default: []].append(piece.testDescription)
        }
      }
    }
    for (id, s) in totals.sorted(by: { $0.value > $1.value }).prefix(25) { write("TOTAL \(id) \(s)") }
    for (id, list) in convicted.sorted(by: { $0.key < $1.key }) {
      write("CONV \(id): \(list.count) \(list.prefix(5))")
    }
    let all: EngineCapabilities = EngineCapabilities.named.reduce(into: []) { $0.formUnion($1.capability) }
    for check in ConformanceSuite("", capabilities: all, makeEngine: { _ in try ReferenceEngine() }).checks
    where convicted[check.id] == nil { write("IDLE \(check.id)") }
    write("END \((clock.now - start) / .seconds(1))")
  }
}
