import Foundation
import Testing

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Starts a writer, kills it once it has printed so many lines, and returns the last number that it printed.
func killWriter(_ arguments: [String], afterReading lines: Int) async throws -> Int? {
  let process = Process()
  let output = Pipe()
  let errors = Pipe()
  process.executableURL = CommandLineTool.url
  process.arguments = ["write-until-killed"] + arguments
  process.standardOutput = output
  process.standardError = errors
  try process.run()

  var printed = Data()
  while printed.count(where: { $0 == UInt8(ascii: "\n") }) < lines {
    let more = output.fileHandleForReading.availableData
    if more.isEmpty { break }
    printed += more
  }
  #expect(kill(process.processIdentifier, SIGKILL) == 0)
  process.waitUntilExit()
  printed += try output.fileHandleForReading.readToEnd() ?? Data()

  let message = String(decoding: try errors.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
  try #require(message == "")
  try #require(process.terminationReason == .uncaughtSignal && process.terminationStatus == SIGKILL)
  let numbers = String(decoding: printed, as: UTF8.self).split(separator: "\n").compactMap { Int($0) }
  #expect(numbers == Array((numbers.first ?? 0)..<(numbers.first ?? 0) + numbers.count))
  return numbers.last
}
