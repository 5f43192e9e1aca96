#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

#if canImport(Darwin)
  import Darwin
#endif

/// What figures depend on besides the code.
public struct MachineDescription: Sendable, Hashable, Codable {
  /// The operating system with its version.
  public let operatingSystem: String
  /// The kind of processor, such as `x86_64`.
  public let architecture: String
  /// What the processor calls itself; nil where the system does not tell.
  public let processor: String?
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
      processor: processorName,
      cores: process.activeProcessorCount, memory: process.physicalMemory, swift: compiler,
      isOptimized: compiledWithOptimization)
  }

  /// One line for people.
  public var summary: String {
    let build = isOptimized ? "" : ", not optimised"
    let processor = processor.map { "\($0), " } ?? ""
    return
      "\(operatingSystem), \(processor)\(architecture), \(cores) cores, \(Units.bytes(memory)) of memory, "
      + "Swift \(swift)\(build)"
  }
}

private var processorName: String? {
  #if !canImport(Darwin)
    // Nil also where /proc is not mounted: then the description has one line less.
    guard let text = try? String(contentsOfFile: "/proc/cpuinfo", encoding: .utf8) else { return nil }
    let line = text.split(separator: "\n").first { $0.hasPrefix("model name") }
    return line?.split(separator: ":").last.map { $0.trimmingCharacters(in: .whitespaces) }
  #else
    var size = 0
    guard sysctlbyname("machdep.cpu.brand_string", nil, &size, nil, 0) == 0 else { return nil }
    var bytes = [UInt8](repeating: 0, count: size)
    guard sysctlbyname("machdep.cpu.brand_string", &bytes, &size, nil, 0) == 0 else { return nil }
    return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
  #endif
}

/// The kind of file system that a place is on, such as `ext4`; nil where the system does not tell.
func fileSystem(of url: URL) -> String? {
  #if !canImport(Darwin)
    guard let text = try? String(contentsOfFile: "/proc/self/mounts", encoding: .utf8) else { return nil }
    let place = url.resolvingSymlinksInPath().pathComponents
    var best: (depth: Int, kind: String)?
    for line in text.split(separator: "\n") {
      // A device, where it is mounted, the kind, options. Of two in one place the later one hides the earlier one.
      let parts = line.split(separator: " ").map(String.init)
      guard parts.count > 2 else { continue }
      let mount = URL(filePath: parts[1]).pathComponents
      if place.starts(with: mount), mount.count >= best?.depth ?? 0 { best = (mount.count, parts[2]) }
    }
    return best?.kind
  #else
    var status = statfs()
    guard statfs(url.path(percentEncoded: false), &status) == 0 else { return nil }
    return withUnsafeBytes(of: status.f_fstypename) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
  #endif
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
