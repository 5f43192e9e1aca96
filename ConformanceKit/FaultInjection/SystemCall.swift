/// A system call that can be made to fail.
enum SystemCall: String, CaseIterable, Codable, Sendable {
  case open, openat, creat
  case read, pread64, readv, preadv
  case write, pwrite64, writev, pwritev
  case fsync, fdatasync, msync
  case rename, renameat, renameat2
  case truncate, ftruncate, fallocate
  case flock, fcntl
  case mmap
  case unlink, unlinkat, rmdir
  case link, linkat
  case mkdir, mkdirat
  case getdents64
  // `fstat` is left out: it needs a descriptor, so the file has been found.
  case stat, lstat, newfstatat, statx
  case access, faccessat, faccessat2
  case addWatch = "inotify_add_watch"

  /// How to find the file of a call, by the positions of its arguments.
  enum Subject {
    case descriptor(Int)
    /// A path, relative to the directory of a descriptor, or to the working directory.
    case path(Int, directory: Int?)
    /// A range of memory.
    case memory
  }

  var subject: Subject {
    switch self {
    case .open, .creat, .truncate, .unlink, .rmdir, .mkdir, .stat, .lstat, .access: .path(0, directory: nil)
    case .addWatch: .path(1, directory: nil)
    case .openat, .unlinkat, .mkdirat, .newfstatat, .statx, .faccessat, .faccessat2: .path(1, directory: 0)
    // The new name.
    case .rename, .link: .path(1, directory: nil)
    case .renameat, .renameat2, .linkat: .path(3, directory: 2)
    case .mmap: .descriptor(4)
    case .msync: .memory
    default: .descriptor(0)
    }
  }

  /// How the call can fail, according to the manuals. Calls that always succeed on local file systems are left out. So
  /// is `close`, because it is unknown whether the descriptor is free after a failed one.
  var failures: [SystemFault.Failure] {
    switch self {
    case .open, .openat, .creat: [.inputOutput, .noSpace, .quota, .tooManyOpenFiles, .interrupted]
    case .read, .pread64: [.inputOutput, .interrupted, .again, .short]
    case .readv, .preadv: [.inputOutput, .interrupted, .again]
    case .write, .pwrite64: [.inputOutput, .noSpace, .quota, .interrupted, .again, .short]
    case .writev, .pwritev: [.inputOutput, .noSpace, .quota, .interrupted, .again]
    case .fsync, .fdatasync: [.inputOutput, .noSpace, .quota, .interrupted]
    case .msync: [.inputOutput]
    case .rename, .renameat, .renameat2, .link, .linkat, .mkdir, .mkdirat: [.inputOutput, .noSpace, .quota]
    case .truncate, .ftruncate: [.inputOutput, .interrupted]
    case .fallocate: [.inputOutput, .noSpace, .quota, .interrupted]
    case .flock, .fcntl: [.inputOutput, .interrupted, .again]
    case .mmap: [.again, .noMemory]
    case .unlink, .unlinkat, .rmdir, .getdents64: [.inputOutput]
    // The number of watches of a user is limited.
    case .addWatch: [.noSpace, .noMemory]
    // Neither error means that the file does not exist.
    case .stat, .lstat, .newfstatat, .statx, .access, .faccessat, .faccessat2: [.inputOutput, .noMemory]
    }
  }

  /// Whether the call waits until data is on the disk.
  var isSync: Bool { [.fsync, .fdatasync, .msync].contains(self) }

  /// Whether the call changes the contents of a file, or waits until they are on the disk.
  var isWrite: Bool {
    isSync
      || [.write, .pwrite64, .writev, .pwritev, .truncate, .ftruncate, .fallocate].contains(self)
  }

  /// Whether the call reads the contents of a file.
  var isRead: Bool { [.read, .pread64, .readv, .preadv].contains(self) }

  /// The commands of `fcntl` that take locks of a process or of an open file.
  static let lockCommands: [UInt32] = [6, 7, 37, 38]

  /// The number of the call on Linux. Nil if it does not exist on this processor.
  var number: UInt32? {
    #if arch(x86_64)
      let numbers: [SystemCall: UInt32] = [
        .open: 2, .openat: 257, .creat: 85, .read: 0, .pread64: 17, .readv: 19, .preadv: 295, .write: 1,
        .pwrite64: 18, .writev: 20, .pwritev: 296, .fsync: 74, .fdatasync: 75, .msync: 26, .rename: 82,
        .renameat: 264, .renameat2: 316, .truncate: 76, .ftruncate: 77, .fallocate: 285, .flock: 73,
        .fcntl: 72, .mmap: 9, .unlink: 87, .unlinkat: 263, .rmdir: 84, .link: 86, .linkat: 265, .mkdir: 83,
        .mkdirat: 258, .getdents64: 217, .stat: 4, .lstat: 6, .newfstatat: 262, .statx: 332, .access: 21,
        .faccessat: 269, .faccessat2: 439, .addWatch: 254,
      ]
    #elseif arch(arm64)
      let numbers: [SystemCall: UInt32] = [
        .openat: 56, .read: 63, .pread64: 67, .readv: 65, .preadv: 69, .write: 64, .pwrite64: 68,
        .writev: 66, .pwritev: 70, .fsync: 82, .fdatasync: 83, .msync: 227, .renameat: 38, .renameat2: 276,
        .truncate: 45, .ftruncate: 46, .fallocate: 47, .flock: 32, .fcntl: 25, .mmap: 222, .unlinkat: 35,
        .linkat: 37, .mkdirat: 34, .getdents64: 61, .newfstatat: 79, .statx: 291, .faccessat: 48,
        .faccessat2: 439, .addWatch: 27,
      ]
    #else
      let numbers: [SystemCall: UInt32] = [:]
    #endif
    return numbers[self]
  }
}

/// How one of an engine's system calls fails.
struct SystemFault: Codable, Sendable, Hashable, CustomStringConvertible {
  enum Failure: String, Codable, Sendable, CaseIterable {
    case inputOutput = "EIO"
    case noSpace = "ENOSPC"
    case quota = "EDQUOT"
    case tooManyOpenFiles = "EMFILE"
    case interrupted = "EINTR"
    case again = "EAGAIN"
    case noMemory = "ENOMEM"
    /// The call transfers half of the bytes, and returns that count.
    case short

    /// The error number on Linux, which is the same on every processor that Swift supports.
    var errorNumber: Int32 {
      switch self {
      case .inputOutput: 5
      case .noSpace: 28
      case .quota: 122
      case .tooManyOpenFiles: 24
      case .interrupted: 4
      case .again: 11
      case .noMemory: 12
      case .short: 0
      }
    }
  }

  let call: SystemCall
  /// The number of the failing call, counted from 1 among the calls of its kind on all files of the engine.
  let number: Int
  let failure: Failure
  /// Whether the fault persists until a call of the engine has thrown. After a failed write, every later write,
  /// truncation and sync fails with EIO, so that the write cannot be undone. After a failed read, every later read of
  /// the same file fails.
  var persists = false

  /// Whether the store is reopened right after a change has thrown. Otherwise it is written to first. This alternates
  /// over the failures of each call.
  var isFollowedByReopening: Bool {
    let position = Failure.allCases.firstIndex(of: failure) ?? 0
    return !persists && (number + position).isMultiple(of: 2)
  }

  var persisting: SystemFault {
    var fault = self
    fault.persists = true
    return fault
  }

  /// A clause such as "the 7th fdatasync failed with EIO".
  var description: String {
    let which = "the \(number)\(ordinalSuffix) \(call.rawValue)"
    let first =
      failure == .short
      ? "\(which) transferred only half of its bytes" : "\(which) failed with \(failure.rawValue)"
    if !persists { return first }
    return call.isRead
      ? "\(first), and so did every later one of that file"
      : "\(first), and every later write, truncation and sync failed"
  }

  private var ordinalSuffix: String {
    switch (number % 10, number % 100) {
    case (_, 11...13): "th"
    case (1, _): "st"
    case (2, _): "nd"
    case (3, _): "rd"
    default: "th"
    }
  }
}
