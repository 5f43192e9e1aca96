/// A disk and the system's cache: which changes are durable, and which may or may not have reached the disk.
///
/// The model promises no more than POSIX does:
/// - `fsync` of a file makes its contents and its attributes durable, `fdatasync` its contents and its length. Neither
///   makes the file's name durable: that takes an `fsync` of the directory that contains the name. `sync` and `syncfs`
///   make everything durable. A file that was opened with `O_SYNC` or `O_DSYNC` makes what is written through it
///   durable.
/// - Everything else may be missing after a power cut, in any combination, and writes may be torn between
///   sectors. So a name may be there without the contents of its file, or the contents without the name.
///
/// There are three exceptions, without which no engine could work:
/// - A rename happens as a whole: there is the old name or the new one, and never neither. A sync of either directory
///   makes both changes durable. A pending rename into a directory whose own name is not on the disk has no effect:
///   otherwise the file would have neither name.
/// - Renaming or removing a name requires the change that created it.
/// - A directory is not removed before its contents.
///
/// Contents that are written through mapped memory (`mmap`) do not reach the disk, since they are unknown.
/// See ``DiskRecording/mappedFiles``.
struct SimulatedDisk: Sendable {
  /// A change that has been made.
  struct Entry: Sendable {
    let number: Int
    let change: DiskChange
    /// The earlier changes that this one requires.
    let needs: [Int]
    /// The earlier changes that this one requires unless it is durable.
    let presumes: [Int]
    fileprivate(set) var isDurable = false
  }

  /// The durable contents, as far as they do not depend on pending changes.
  private var base: DiskTree
  private var log: [Entry] = []
  private(set) var nextNumber: Int

  /// A disk without pending changes.
  init(_ tree: DiskTree, nextNumber: Int = 0) {
    base = tree
    self.nextNumber = nextNumber
  }

  /// The changes that may or may not have reached the disk, in the order in which they were made.
  var pending: [Entry] { log.filter { !$0.isDurable } }

  /// Makes a change, only in memory.
  mutating func make(_ change: DiskChange) {
    log.append(
      Entry(number: nextNumber, change: change, needs: needs(of: change), presumes: presumptions(of: change)))
    nextNumber += 1
  }

  /// Makes changes durable.
  mutating func sync(_ sync: DiskSync) {
    for entry in log where (sync.from..<sync.before).contains(entry.number) && sync.scope.covers(entry.change)
    {
      markDurable(entry.number)
    }
    fold()
  }

  /// The contents of the disk after a power cut.
  ///
  /// - Parameter outcome: The outcome of each pending change.
  func tree(_ outcome: (Entry) -> PersistenceOutcome) -> DiskTree {
    var tree = base
    var missing: Set<Int> = []
    for entry in log {
      let outcome = entry.isDurable ? .whole : outcome(entry)
      let requirements = entry.isDurable ? [] : entry.needs + entry.presumes
      if outcome == .missing || requirements.contains(where: missing.contains) {
        missing.insert(entry.number)
      } else {
        tree.apply(entry.change, outcome)
      }
    }
    return tree
  }

  /// The changes that this one requires, including indirectly.
  func requirements(of number: Int) -> Set<Int> { closure(of: number) { $0.needs + $0.presumes } }

  private func closure(of number: Int, _ direct: (Entry) -> [Int]) -> Set<Int> {
    var found: Set<Int> = []
    var open = [number]
    while let next = open.popLast() {
      guard let entry = log.first(where: { $0.number == next }) else { continue }
      for other in direct(entry) where found.insert(other).inserted { open.append(other) }
    }
    return found
  }

  /// The changes that give names to the directory that a file is moved into, and to those above it.
  private func presumptions(of change: DiskChange) -> [Int] {
    guard case .rename(_, let new, _) = change else { return [] }
    var presumptions: [Int] = []
    var directory = new.directory
    for entry in log.reversed() {
      guard case .link(let name, directory) = entry.change else { continue }
      presumptions.append(entry.number)
      directory = name.directory
    }
    return presumptions
  }

  private func needs(of change: DiskChange) -> [Int] {
    let (name, number): (DiskName, Int)
    switch change {
    case .unlink(let old, let node), .rename(let old, _, let node): (name, number) = (old, node)
    default: return []
    }
    let maker = log.last { entry in
      switch entry.change {
      case .link(name, to: _): true
      case .rename(_, to: name, of: _): true
      default: false
      }
    }
    var needs = maker.map { [$0.number] } ?? []
    if case .unlink = change, base.isDirectory(number) {
      needs += log.filter { $0.change.names.contains { $0.directory == number } }.map(\.number)
    }
    return needs
  }

  private mutating func markDurable(_ number: Int) {
    for number in closure(of: number, \.needs).union([number]) {
      if let index = log.firstIndex(where: { $0.number == number }) { log[index].isDurable = true }
    }
  }

  /// Moves durable changes into the base unless they follow a pending change and the order matters.
  private mutating func fold() {
    var files: Set<Int> = []
    var names: Set<DiskName> = []
    var rest: [Entry] = []
    for entry in log {
      let isFree =
        entry.isDurable && !entry.change.names.contains(where: names.contains)
        && entry.change.file.map { !files.contains($0) } ?? true
      if isFree {
        base.apply(entry.change)
      } else {
        rest.append(entry)
        names.formUnion(entry.change.names)
        if let file = entry.change.file { files.insert(file) }
      }
    }
    log = rest
  }
}

extension DiskSync.Scope {
  fileprivate func covers(_ change: DiskChange) -> Bool {
    switch self {
    case .everything: true
    case .node(let node, let contentsOnly):
      change.file.map { $0 == node && (change.isContents || !contentsOnly) }
        ?? change.names.contains { $0.directory == node }
    }
  }
}
