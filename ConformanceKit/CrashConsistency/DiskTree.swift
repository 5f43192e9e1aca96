#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A snapshot of directories and files.
struct DiskTree: Sendable {
  struct File: Hashable, Sendable {
    var bytes = Data()
    var attributes: [String: Data] = [:]
    /// The modification time, if the engine has set it. Otherwise it does not matter.
    var time: FileTime?
  }

  /// The directory that contains all others.
  static let root = 0

  /// The names in each directory, including directories that no longer have a name.
  private(set) var directories: [Int: [String: Int]] = [root: [:]]
  private(set) var files: [Int: File] = [:]

  /// Adds a directory that has no name yet.
  mutating func addDirectory(_ number: Int) { directories[number] = [:] }

  /// Adds a file that has no name yet.
  mutating func addFile(_ number: Int) { files[number] = File() }

  func isDirectory(_ number: Int) -> Bool { directories[number] != nil }

  func length(of file: Int) -> Int { files[file]?.bytes.count ?? 0 }

  subscript(name: DiskName) -> Int? { directories[name.directory]?[name.name] }

  /// Every path below the root with its file or directory, in order. A path comes after its parent directories.
  var paths: [(path: String, number: Int)] {
    var paths: [(String, Int)] = []
    // A directory has only one parent.
    var seen: Set<Int> = []
    func walk(_ directory: Int, _ prefix: String) {
      guard seen.insert(directory).inserted, let names = directories[directory] else { return }
      for (name, number) in names.sorted(by: { $0.key < $1.key }) {
        paths.append((prefix + name, number))
        if isDirectory(number) { walk(number, prefix + name + "/") }
      }
    }
    walk(Self.root, "")
    return paths
  }

  /// Trees with equal contents have equal fingerprints.
  var fingerprint: Int {
    var hasher = Hasher()
    for (path, number) in paths {
      hasher.combine(path)
      guard let file = files[number] else { continue }
      hasher.combine(file.attributes)
      hasher.combine(file.time)
      hasher.combine(file.bytes.count)
      file.bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
    }
    return hasher.finalize()
  }
}

// MARK: - Changing

extension DiskTree {
  /// Applies a change, or the part of it that reached the disk.
  mutating func apply(_ change: DiskChange, _ outcome: PersistenceOutcome = .whole) {
    if outcome == .missing { return }
    switch change {
    case .write(let file, let offset, let bytes): write(bytes, at: offset, in: file, outcome)
    case .resize(let file, let length):
      resize(file, to: length)
      files[file]?.time = nil
    case .setAttribute(let file, let name, let value): files[file]?.attributes[name] = value
    case .setTime(let file, let time): files[file]?.time = time
    case .link(let name, let number): directories[name.directory]?[name.name] = number
    case .unlink(let name, let number): remove(name, of: number)
    case .rename(let old, let new, let number):
      remove(old, of: number)
      directories[new.directory]?[new.name] = number
    }
  }

  private mutating func remove(_ name: DiskName, of number: Int) {
    if self[name] == number { directories[name.directory]?[name.name] = nil }
  }

  private mutating func resize(_ file: Int, to length: Int) {
    // Growing data fills the new bytes with zeros, as growing a file does.
    if length != self.length(of: file) { files[file]?.bytes.count = length }
  }

  private mutating func write(_ bytes: Data, at offset: Int, in file: Int, _ outcome: PersistenceOutcome) {
    let written = outcome.range(ofWriteAt: offset, count: bytes.count)
    let end =
      outcome.isEndWritten(ofWriteAt: offset, count: bytes.count) ? offset + bytes.count : written.upperBound
    if end > length(of: file) { resize(file, to: end) }
    files[file]?.time = nil
    guard !written.isEmpty else { return }
    files[file]?.bytes.withUnsafeMutableBytes { target in
      bytes.withUnsafeBytes { source in
        let part = UnsafeRawBufferPointer(
          rebasing: source[(written.lowerBound - offset)..<(written.upperBound - offset)])
        UnsafeMutableRawBufferPointer(rebasing: target[written]).copyMemory(from: part)
      }
    }
  }
}

extension PersistenceOutcome {
  /// The range of bytes of the file that a write has changed.
  fileprivate func range(ofWriteAt offset: Int, count: Int) -> Range<Int> {
    let all = offset..<(offset + count)
    switch self {
    case .missing, .lengthOnly: return offset..<offset
    case .whole: return all
    case .sectors(let sectors):
      let start = offset / Self.sectorSize * Self.sectorSize
      let torn =
        (start + sectors.lowerBound * Self.sectorSize)..<(start + sectors.upperBound * Self.sectorSize)
      return torn.clamped(to: all)
    }
  }

  /// Whether the file is at least as long as the write makes it.
  fileprivate func isEndWritten(ofWriteAt offset: Int, count: Int) -> Bool {
    switch self {
    case .missing, .sectors: false
    case .whole, .lengthOnly: true
    }
  }

  /// How many sectors a write touches.
  static func sectorCount(ofWriteAt offset: Int, count: Int) -> Int {
    count == 0 ? 0 : (offset + count - 1) / sectorSize - offset / sectorSize + 1
  }
}
