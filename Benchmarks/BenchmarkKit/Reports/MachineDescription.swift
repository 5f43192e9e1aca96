#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

#if canImport(Darwin)
  import Darwin
#endif

/// The machine that a benchmark ran on.
public struct MachineDescription: Sendable, Hashable, Codable {
  /// The operating system with its version.
  public let operatingSystem: String
  /// The kind of processor, such as `x86_64`.
  public let architecture: String
  /// The model name of the processor; nil where the system does not report it.
  public let processor: String?
  /// The number of active processors.
  public let cores: Int
  /// The size of the memory in bytes.
  public let memory: UInt64
  /// The Swift release that compiled this, such as `6.3`.
  public let swift: String
  /// Whether this is a release build. The figures of a debug build are not representative.
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

  /// The description in one line.
  public var summary: String {
    let build = isOptimized ? "" : ", not optimized"
    let processor = processor.map { "\($0), " } ?? ""
    return
      "\(operatingSystem), \(processor)\(architecture), \(cores) cores, \(Units.bytes(memory)) of memory, "
      + "Swift \(swift)\(build)"
  }
}

private var processorName: String? {
  #if !canImport(Darwin)
    // Nil also where /proc is not mounted.
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

/// The type of the file system of a path, such as `ext4`; nil where the system does not report it.
func fileSystem(of url: URL) -> String? {
  #if !canImport(Darwin)
    guard let text = try? String(contentsOfFile: "/proc/self/mounts", encoding: .utf8) else { return nil }
    return fileSystem(of: url.resolvingSymlinksInPath(), mounts: text)
  #else
    var status = statfs()
    guard statfs(url.path(percentEncoded: false), &status) == 0 else { return nil }
    return withUnsafeBytes(of: status.f_fstypename) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
  #endif
}

/// The type of the file system of a path without symbolic links, from the contents of `/proc/self/mounts`.
func fileSystem(of url: URL, mounts: String) -> String? {
  let path = url.pathComponents
  var best: (depth: Int, kind: String)?
  for line in mounts.split(separator: "\n") {
    // Device, mount point, type, options. Of two file systems on one mount point the later one hides the earlier.
    let parts = line.split(separator: " ").map(String.init)
    guard parts.count > 2 else { continue }
    // A space, a tab, a newline and a backslash in a path are escaped as octal numbers.
    let mount = URL(
      filePath: parts[1].replacing(/\\([01][0-7][0-7])/) { match in
        UInt8(match.1, radix: 8).map { String(UnicodeScalar($0)) } ?? String(match.0)
      }
    ).pathComponents
    if path.starts(with: mount), mount.count >= best?.depth ?? 0 { best = (mount.count, parts[2]) }
  }
  return best?.kind
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

// A condition can only test that the compiler has at least a version.
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
