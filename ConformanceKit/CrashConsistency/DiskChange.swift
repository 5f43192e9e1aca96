#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A name in a directory. Files and directories have numbers, which stay the same when they are renamed.
struct DiskName: Hashable, Sendable {
  let directory: Int
  let name: String
}

/// The change that a system call makes, at first only in the system's memory.
enum DiskChange: Sendable {
  case write(Int, offset: Int, Data)
  case resize(Int, length: Int)
  /// Nil removes the attribute.
  case setAttribute(Int, name: String, Data?)
  case setTime(Int, FileTime)
  /// Adds a name for a new or existing file or directory.
  case link(DiskName, to: Int)
  /// Removes the name of a file or of an empty directory.
  case unlink(DiskName, of: Int)
  case rename(DiskName, to: DiskName, of: Int)

  /// The file whose contents or attributes change. Nil if the change is of names.
  var file: Int? {
    switch self {
    case .write(let file, _, _), .resize(let file, _), .setAttribute(let file, _, _), .setTime(let file, _):
      file
    case .link, .unlink, .rename: nil
    }
  }

  /// The names that change.
  var names: [DiskName] {
    switch self {
    case .write, .resize, .setAttribute, .setTime: []
    case .link(let name, _), .unlink(let name, _): [name]
    case .rename(let old, let new, _): [old, new]
    }
  }

  /// Whether `fdatasync` also waits for the change: contents, and the length that is needed to read them.
  var isContents: Bool {
    switch self {
    case .write, .resize: true
    default: false
    }
  }
}

/// A modification time: seconds and nanoseconds since 1970.
struct FileTime: Hashable, Sendable {
  let seconds: Int
  let nanoseconds: Int
}

/// A call that waits until changes are on the disk.
struct DiskSync: Sendable {
  enum Scope: Sendable {
    /// The contents of a file with its attributes, unless the call is `fdatasync`, or the names in a directory.
    case node(Int, contentsOnly: Bool)
    case everything
  }

  let scope: Scope
  /// The sync covers only changes with numbers below this one: those that had been made when the call began.
  let before: Int
  /// The sync covers only changes from this number on. After a write to a file that was opened with `O_SYNC`, that is
  /// the write alone.
  var from = 0
}

/// An event of a recording.
enum DiskEvent: Sendable {
  case change(DiskChange)
  case sync(DiskSync)
  /// A step of the scenario has been acknowledged.
  case acknowledgement(Int)
}

/// The outcome of a change at a power cut.
enum PersistenceOutcome: Hashable, Sendable {
  case missing
  case whole
  /// Of a write: the file has its new length, but the bytes are the old ones or zero.
  case lengthOnly
  /// Of a write: only these sectors have reached the disk, counted from the first one of the write.
  case sectors(Range<Int>)

  /// The unit that a disk writes completely or not at all.
  static let sectorSize = 512
}
