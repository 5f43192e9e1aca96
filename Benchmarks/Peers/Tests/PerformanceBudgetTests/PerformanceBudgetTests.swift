import BenchmarkKit
import Foundation
import PerformanceBudget
import StockroomCore
import StockroomMemory
import Testing

@Suite("The performance budget") struct PerformanceBudgetTests {
  @Test("Every limit has a name of its own and workloads that exist")
  func isComplete() {
    #expect(Set(Limit.all.map(\.name)).count == Limit.all.count)
    let workloads = Set(Limit.all.workloads.map(\.name))
    #expect(workloads == Set(Limit.all.flatMap(\.sides).map(\.workload)))
  }

  @Test("A limit is selected by its name and by its groups")
  func selects() throws {
    let limit = try #require(Limit.all.first { $0.name == "growth/lmdb/read-one" })
    #expect(limit.isSelected(by: "growth/lmdb/read-one"))
    #expect(limit.isSelected(by: "growth/lmdb"))
    #expect(limit.isSelected(by: "growth"))
    #expect(!limit.isSelected(by: "growth/lm"))
    #expect(!limit.isSelected(by: "read-one"))
  }

  @Test("A result is the median of the ratios of all repetitions")
  func comparesWithLimits() async throws {
    let report = try await report()
    let (fast, slow) = (Limit.Side("fast", "read-one"), Limit.Side("slow", "read-one"))
    let mine = try #require(report.result(of: "fast", in: "read-one"))
    let other = try #require(report.result(of: "slow", in: "read-one"))
    let operations = Double(mine.operations)
    let ratios = zip(mine.samples, other.samples).map { ($0 / operations) / ($1 / operations) }.sorted()

    let time = Limit(
      name: "a", measured: fast, reference: slow, quantity: .time, bound: .atMost(ratios[1]))
    let result = LimitResult(time, in: report)
    #expect(result.value?.median == ratios[1])
    #expect(result.value?.minimum == ratios[0])
    #expect(result.value?.maximum == ratios[2])
    #expect(result.isMet)
    #expect(ratios[1] < 0.9)

    let tighter = Limit(
      name: "b", measured: fast, reference: slow, quantity: .time, bound: .atMost(ratios[1] * 0.99))
    #expect(!LimitResult(tighter, in: report).isMet)

    let throughput = Limit(
      name: "c", measured: fast, reference: slow, quantity: .throughput, bound: .atLeast(1))
    #expect(LimitResult(throughput, in: report).isMet)
    let converse = Limit(
      name: "d", measured: slow, reference: fast, quantity: .throughput, bound: .atLeast(1))
    #expect(!LimitResult(converse, in: report).isMet)

    let stall = Limit(name: "e", measured: fast, reference: nil, quantity: .stall, bound: .atMost(-1))
    #expect(!LimitResult(stall, in: report).isMet)
    #expect(LimitResult(stall, in: report).value?.median == (mine.stall ?? 0) * 1_000)
  }

  @Test("Work that is too short for a stall keeps within a limit of stalls")
  func noStall() async throws {
    let json = String(decoding: try await report().json(), as: UTF8.self)
    let lines = json.split(separator: "\n").filter { !$0.contains("\"stall\" :") }
    let short = try BenchmarkReport(json: Data(lines.joined(separator: "\n").utf8))
    let side = Limit.Side("fast", "read-one")
    #expect(try #require(short.result(of: "fast", in: "read-one")).stall == nil)
    let limit = Limit(name: "stall", measured: side, reference: nil, quantity: .stall, bound: .atMost(20))
    let result = LimitResult(limit, in: short)
    #expect(result.value?.median == 0)
    #expect(result.isMet)
    let missing = Limit.Side("nobody", "read-one")
    let unmeasured = Limit(
      name: "none", measured: missing, reference: nil, quantity: .stall, bound: .atMost(20))
    #expect(!LimitResult(unmeasured, in: short).isMet)
  }

  @Test("A limit without a measurement is not met and reported as not measured")
  func reportsWhatIsMissing() async throws {
    let report = try await report()
    let side = Limit.Side("fast", "read-one")
    let met = Limit(name: "met", measured: side, reference: side, quantity: .time, bound: .atMost(1))
    let missing = Limit(
      name: "missing", measured: Limit.Side("nobody", "read-one"), reference: side, quantity: .time,
      bound: .atMost(1))
    #expect(BudgetReport([met], in: report).areAllMet)
    let both = BudgetReport([met, missing], in: report)
    #expect(!both.areAllMet)
    #expect(both.text.contains("NOT MEASURED") && both.text.hasSuffix("1 of 2 limits are missed.\n"))
    #expect(both.markdown.contains("| met | 1.00 | ≤ 1.00 |"))
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .iso8601
    #expect(try decoder.decode(BudgetReport.self, from: both.json()).results == both.results)
  }

  private func report() async throws -> BenchmarkReport {
    let configuration = BenchmarkConfiguration(
      entries: 2_000, valueSize: 10, repetitions: 3, workloads: try #require(Workload.named("read-one")))
    return try await BenchmarkRunner(configuration: configuration).run([
      BenchmarkSubject("fast") { _ in MemoryStorageEngine() },
      BenchmarkSubject("slow") { _ in SlowEngine() },
    ])
  }
}

/// A memory engine that reads each value 20 additional times.
private struct SlowEngine: StorageEngine {
  private let memory = MemoryStorageEngine()

  func write(_ data: Data, key: CacheKey) async throws { try await memory.write(data, key: key) }

  func read(key: CacheKey) async throws -> Data? {
    for _ in 0..<20 { _ = try await memory.read(key: key) }
    return try await memory.read(key: key)
  }

  func remove(key: CacheKey) async throws { try await memory.remove(key: key) }
  func allKeys() async throws -> [CacheKey] { try await memory.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await memory.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await memory.updatedAt(key: key) }
}
