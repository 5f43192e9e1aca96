import Foundation
import Testing

@testable import BenchmarkKit

@Suite("The report") struct BenchmarkReportTests {
  private let report = BenchmarkReport(
    BenchmarkConfiguration(
      entries: 1_000, valueSize: 1_536, repetitions: 3, seed: 7,
      workloads: Workload.all.filter { ["read-all", "count"].contains($0.name) }, durability: "full"),
    subjects: ["swift", "level", "slow"]
  ) { subject, _ in
    let seconds =
      switch subject {
      case "swift": [0.010, 0.012, 0.011]
      case "level": [0.0115, 0.013, 0.0125]
      default: [1.0, 1.2, 1.1]
      }
    return seconds.map { seconds in
      var latencies = LatencyHistogram()
      for call in 1...1_000 { latencies.add(nanoseconds: UInt64(call) * 1_000) }
      return Measurement(
        operations: 1_000, seconds: seconds, processorSeconds: seconds / 2, peakMemory: 1 << 20, stall: 0.002,
        latencies: latencies, bytesOnDisk: 4_096, bytesStored: 2_048)
    }
  }

  @Test("The least median is the fastest; a difference within the spread is a tie")
  func standing() {
    #expect(report.standing(of: "swift", in: "count") == .fastest)
    #expect(report.standing(of: "level", in: "count") == .tied)
    #expect(report.standing(of: "slow", in: "count") == .slower)
    #expect(report.standing(of: "swift", in: "unknown") == nil)
    #expect(report.standing(of: "unknown", in: "count") == nil)
  }

  @Test("Times and throughput are those of one operation")
  func perOperation() throws {
    let result = try #require(report.result(of: "swift", in: "read-all"))
    #expect(result.operations == 1_000)
    #expect(abs(result.secondsPerOperation - 0.000_011) < 1e-12)
    #expect(abs(result.operationsPerSecond - 90_909) < 1)
  }

  @Test("A result has latencies, processor time, memory and disk space")
  func besides() throws {
    let result = try #require(report.result(of: "swift", in: "count"))
    let latency = try #require(result.latency)
    for (time, expected) in [
      (latency.p50, 0.0005), (latency.p90, 0.0009), (latency.p99, 0.00099), (latency.p999, 0.000999),
    ] {
      #expect(abs(time - expected) < expected * 0.03)
    }
    #expect(latency.maximum == 0.001)
    #expect(abs(result.processorSecondsPerOperation - 0.000_005_5) < 1e-12)
    #expect(result.peakMemory == 1 << 20)
    #expect(result.stall == 0.002)
    #expect(result.bytesOnDisk == 4_096)
    #expect(result.bytesOnDiskPerByte == 2)
  }

  @Test("The text has aligned columns and marks the fastest and the ties")
  func text() throws {
    let lines = report.text.split(separator: "\n")
    let row = try #require(lines.first { $0.hasPrefix("read-all") })
    #expect(row == "read-all  * 11.0 µs ±9%  ≈ 12.5 µs ±6%  1.10 ms ±9%")
    let header = try #require(lines.first { $0.hasPrefix("workload") })
    #expect(header.count == row.count)
    #expect(lines[0].hasPrefix("1000 entries, values of 1.50 KiB on average, seed 7, durability full"))
    #expect(report.text.contains("* 90.9k ops/s"))
  }

  @Test("The Markdown has a row for each workload with the fastest in bold")
  func markdown() {
    #expect(report.markdown.contains("| workload | swift | level | slow |\n| --- | ---: | ---: | ---: |\n"))
    #expect(report.markdown.contains("| read-all | **11.0 µs ±9%** | ≈ 12.5 µs ±6% | 1.10 ms ±9% |"))
  }

  @Test("The JSON can be read back and has all samples")
  func json() throws {
    let json = try report.json()
    #expect(try BenchmarkReport(json: json) == report)
    let object = try #require(try JSONSerialization.jsonObject(with: json) as? [String: Any])
    let results = try #require(object["results"] as? [[String: Any]])
    #expect(results.count == 6)
    #expect(results[0]["samples"] as? [Double] == [0.010, 0.012, 0.011])
    #expect(object["machine"] is [String: Any])
    #expect(throws: DecodingError.self) { try BenchmarkReport(json: Data("{}".utf8)) }
  }

  @Test(
    "A report with impossible figures is rejected",
    arguments: [
      ("\"valueSize\" : 1536", "\"valueSize\" : -1536"), ("\"operations\" : 1000", "\"operations\" : 0"),
      ("\"median\" : 0.011", "\"median\" : -0.011"), ("\"median\" : 0.011", "\"median\" : 1e300"),
      ("\"median\" : 0.011", "\"median\" : 100"),
    ])
  func impossible(figure: String, instead: String) throws {
    let json = String(decoding: try report.json(), as: UTF8.self)
    #expect(json.contains(figure))
    let corrupted = json.replacingOccurrences(of: figure, with: instead)
    #expect(throws: DecodingError.self) { try BenchmarkReport(json: Data(corrupted.utf8)) }
  }

  @Test("Nothing in the command ends the block of the page in which it is")
  func commandBlock() {
    #expect(report.page(command: "a b", headlines: "").contains("\n\n```\na b\n```\n\n"))
    let command = "a '\n```\n# b'"
    #expect(report.page(command: command, headlines: "").contains("\n\n````\n\(command)\n````\n\n"))
  }

  @Test("The report names the subjects that keep entries elsewhere than on its file system")
  func elsewhere() throws {
    func report(_ elsewhere: [String]) -> BenchmarkReport {
      BenchmarkReport(
        BenchmarkConfiguration(workloads: Workload.named("count") ?? []), subjects: ["a", "b"],
        elsewhere: elsewhere
      ) { _, _ in
        [
          Measurement(
            operations: 1, seconds: 1, processorSeconds: 1, peakMemory: nil, stall: nil,
            latencies: LatencyHistogram())
        ]
      }
    }
    let (without, with) = (report([]), report(["b"]))
    #expect(!without.text.contains("elsewhere"))
    #expect(with.text.split(separator: "\n")[0].contains(", b elsewhere, "))
    #expect(with.html.contains(", b elsewhere, "))
    #expect(with.page(command: "", headlines: "").contains(", b elsewhere |"))
    #expect(try BenchmarkReport(json: with.json()) == with)
    let comparison = BenchmarkComparison(before: without, after: with)
    #expect(comparison.caveats.contains { $0.hasPrefix("File system: ") && $0.contains("b elsewhere now") })
  }

  @Test("A report of one repetition shows no spread")
  func oneRepetition() {
    let report = BenchmarkReport(
      BenchmarkConfiguration(repetitions: 1, workloads: Workload.named("count") ?? []), subjects: ["a", "b"]
    ) { _, _ in
      [
        Measurement(
          operations: 1, seconds: 1, processorSeconds: 1, peakMemory: nil, stall: nil,
          latencies: LatencyHistogram())
      ]
    }
    #expect(report.text.contains("Time of one operation: one repetition, no spread."))
    #expect(report.markdown.contains("Time of one operation: one repetition, no spread."))
    #expect(report.page(command: "", headlines: "").contains("One repetition, no spread."))
    #expect(report.html.contains("<p>One repetition, no spread.</p>"))
    for text in [report.text, report.markdown, report.page(command: "", headlines: ""), report.html] {
      #expect(!text.contains("±0%"))
    }
  }

  @Test("The report names a workload's own records, and has no stall for short work")
  func ownRecords() {
    let own = Workload("own", "Reads.", entries: 7, valueSize: 2_048) { _ in }
    let report = BenchmarkReport(BenchmarkConfiguration(workloads: [own]), subjects: ["a"]) { _, _ in
      [
        Measurement(
          operations: 1, seconds: 1e-5, processorSeconds: 0, peakMemory: nil, stall: nil,
          latencies: LatencyHistogram())
      ]
    }
    #expect(
      report.text.hasPrefix("5000 entries, values of 1.00 KiB on average unless a workload has its own,"))
    #expect(report.text.contains("own: Reads. (7 entries, values of 2.00 KiB on average)"))
    #expect(!report.details.contains("Stall:"))
    #expect(report.html.contains("<td>–</td>"))
  }

  @Test("The file system is that of the innermost mount point, whatever its name")
  func mountPoints() {
    let mounts = """
      /dev/a / ext4 rw 0 0
      /dev/b /mnt/a\\040disk xfs rw 0 0
      tmpfs /mnt tmpfs rw 0 0

      """
    func kind(_ path: String) -> String? { fileSystem(of: URL(filePath: path), mounts: mounts) }
    #expect(kind("/mnt/a disk/place") == "xfs")
    #expect(kind("/mnt/place") == "tmpfs")
    #expect(kind("/mnt2/place") == "ext4")
  }
}
