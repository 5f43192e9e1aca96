#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

extension System {
  /// The bytes of memory that this process alone uses, without what it has mapped from files. Nil if the system does
  /// not tell.
  static var memoryInUse: Int? {
    #if canImport(Darwin)
      var statistics = malloc_statistics_t()
      malloc_zone_statistics(nil, &statistics)
      return Int(statistics.size_in_use)
    #elseif os(Linux)
      // Pages: all, those in memory, those of them that are shared or mapped from files.
      guard let line = try? String(contentsOf: URL(filePath: "/proc/self/statm"), encoding: .utf8) else {
        return nil
      }
      let pages = line.split(separator: " ").compactMap { Int($0) }
      return pages.count > 2 ? (pages[1] - pages[2]) * sysconf(Int32(_SC_PAGESIZE)) : nil
    #else
      return nil
    #endif
  }
}
