import Foundation
import Testing

@testable import BenchmarkKit

@Suite("The configuration") struct BenchmarkConfigurationTests {
  @Test("The default configuration is valid")
  func valid() throws {
    try BenchmarkConfiguration().validate()
  }

  @Test(
    "A setting out of range throws an error with its name and the range",
    arguments: [
      (BenchmarkConfiguration(entries: -1), "The number of entries must be between 1 and 10000000, not -1."),
      (BenchmarkConfiguration(entries: 0), "The number of entries must be between 1 and 10000000, not 0."),
      (
        BenchmarkConfiguration(valueSize: -5),
        "The value size in bytes must be between 0 and 67108864, not -5."
      ),
      (
        BenchmarkConfiguration(repetitions: 0), "The number of repetitions must be between 1 and 1000, not 0."
      ),
      (BenchmarkConfiguration(workloads: []), "No workload is selected."),
    ])
  func outOfBounds(configuration: BenchmarkConfiguration, message: String) {
    let error = #expect(throws: BenchmarkError.self) { try configuration.validate() }
    #expect(error?.description == message)
  }

  @Test("A workload's own records have limits too", arguments: [-1, 0, 10_000_001, .max])
  func ownRecords(entries: Int) {
    let workload = Workload("own", "Does nothing.", entries: entries) { _ in }
    let error = #expect(throws: BenchmarkError.self) {
      try BenchmarkConfiguration(workloads: [workload]).validate()
    }
    #expect(
      error?.description == "The number of entries of own must be between 1 and 10000000, not \(entries).")
  }

  @Test("More data than a quarter of the memory is rejected")
  func tooLarge() {
    let configuration = BenchmarkConfiguration(entries: 10_000_000, valueSize: 64 << 20)
    let error = #expect(throws: BenchmarkError.self) { try configuration.validate() }
    #expect(error?.description.contains("a quarter of this machine's memory") == true)
  }

  @Test("Workloads whose records are together more than a quarter of the memory are rejected")
  func tooLargeTogether() throws {
    let workloads = (0..<8).map { number in
      Workload("own \(number)", "Does nothing.", entries: number + 1, valueSize: 64 << 20) { _ in }
    }
    let most = Int(ProcessInfo.processInfo.physicalMemory / 4) / (64 << 20)
    let large = Workload("large", "Does nothing.", entries: most, valueSize: 64 << 20) { _ in }
    try BenchmarkConfiguration(workloads: [large]).validate()
    #expect(throws: BenchmarkError.self) {
      try BenchmarkConfiguration(workloads: [large] + workloads).validate()
    }
  }

  @Test("A workload that is listed twice is rejected")
  func repeatedWorkload() {
    let configuration = BenchmarkConfiguration(workloads: [Workload.all[0], Workload.all[1], Workload.all[0]])
    let error = #expect(throws: BenchmarkError.self) { try configuration.validate() }
    #expect(error?.description == "The workload write-one is listed twice.")
  }

  @Test("Workloads are found by their names and by those of their groups, and all names are distinct")
  func names() {
    let names = Workload.all.map(\.name) + Workload.groups.map(\.name) + ["all"]
    #expect(Set(names).count == names.count)
    for workload in Workload.all { #expect(Workload.named(workload.name)?.map(\.name) == [workload.name]) }
    for group in Workload.groups {
      #expect(Workload.named(group.name)?.map(\.name) == group.workloads.map(\.name))
    }
    #expect(Workload.named("all")?.count == Workload.all.count)
    #expect(Workload.named("sleep") == nil)
  }

  @Test("A run without subjects, or with two of one name, throws")
  func subjects() async {
    let runner = BenchmarkRunner()
    let none = await #expect(throws: BenchmarkError.self) { try await runner.run([]) }
    #expect(none?.description == "No engine is selected.")
    let subject = BenchmarkSubject("twin") { _ in SpyEngine() }
    let twins = await #expect(throws: BenchmarkError.self) { try await runner.run([subject, subject]) }
    #expect(twins?.description == "Two engines have the name twin.")
  }
}
