#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What figures depend on besides the code.
public struct MachineDescription: Sendable, Hashable, Codable {
  /// The operating system with its version.
  public let operatingSystem: String
  /// The kind of processor, such as `x86_64`.
  public let architecture: String
  /// How many processors were active.
  public let cores: Int
  /// How much memory there was, in bytes.
  public let memory: UInt64
  /// The Swift release that compiled this, such as `6.3`.
  public let swift: String
  /// Whether the compiler was told to optimise. If not, the figures say little.
  public let isOptimized: Bool

  /// The machine that this runs on.
  static var current: MachineDescription {
    let process = ProcessInfo.processInfo
    return MachineDescription(
      operatingSystem: process.operatingSystemVersionString, architecture: compiledArchitecture,
      cores: process.activeProcessorCount, memory: process.physicalMemory, swift: compiler,
      isOptimized: compiledWithOptimization)
  }

  /// One line for people.
  public var summary: String {
    let build = isOptimized ? "" : ", not optimised"
    return "\(operatingSystem), \(architecture), \(cores) cores, \(Units.bytes(memory)) of memory, "
      + "Swift \(swift)\(build)"
  }
}

private var compiledArchitecture: String {
  #if arch(x86_64)
    "x86_64"
  #elseif arch(arm64)
    "arm64"
  #elseif arch(riscv64)
    "riscv64"
  #else
    "other"
  #endif
}

// A program can ask at compile time only whether its compiler is at least some version.
private var compiler: String {
  #if compiler(>=6.4)
    "6.4 or later"
  #elseif compiler(>=6.3)
    "6.3"
  #else
    "6.2"
  #endif
}

private var compiledWithOptimization: Bool {
  #if DEBUG
    false
  #else
    true
  #endif
}
