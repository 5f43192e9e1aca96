/// The changes that an engine has made to its files, in order.
struct DiskRecording: Sendable {
  struct Event: Sendable {
    let event: DiskEvent
    /// The call, for lists of operations: "fsync of store/journal".
    let summary: String
  }

  /// The initial contents and, without names, the files and directories that were created later.
  var initial: DiskTree
  var events: [Event] = []
  /// The files that were mapped for writing. Writes through a mapping do not appear in the recording.
  ///
  /// In all simulated states these files contain what system calls have written to them, and nothing that was written
  /// through the mapping, because that may be missing after a power cut. Engines map files that they recreate after a
  /// power cut, such as the shared memory of SQLite and the lock file of LMDB. An engine that keeps data in such files
  /// cannot be checked. It is detected by ``firstDifference(from:)``, or because its data is missing after the last
  /// call.
  var mappedFiles: Set<Int> = []
  /// The files and directories that were created with permissions for other users, in directories that others can
  /// enter, with their modes.
  var exposed: [String] = []
  /// The operation that cannot be simulated, as a sentence. Nil if there is none.
  var limitation: String?

  /// The contents without a power cut.
  var final: DiskTree {
    var tree = initial
    for case .change(let change) in events.map(\.event) { tree.apply(change) }
    return tree
  }

  /// The recorded system calls: all that change files, and those that are needed to interpret them. Systems without one
  /// of these calls ignore it.
  static let calls = [
    "open", "openat", "creat", "close", "close_range", "dup", "dup2", "dup3", "fcntl", "lseek", "read",
    "readv",
    "write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "truncate", "fallocate", "rename",
    "renameat",
    "renameat2", "link", "linkat", "unlink", "unlinkat", "symlink", "symlinkat", "mkdir", "mkdirat", "rmdir",
    "fsync", "fdatasync", "sync", "syncfs", "mmap", "copy_file_range", "sendfile", "splice", "io_uring_setup",
    "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "utimensat", "chdir",
    "fchdir", "fork", "vfork", "clone", "clone3",
  ]

  /// All system calls that create, rename or remove files, and those that are needed to interpret them.
  static let callsOfNames = [
    "open", "openat", "creat", "close", "close_range", "dup", "dup2", "dup3", "fcntl", "rename", "renameat",
    "renameat2", "link", "linkat", "unlink", "unlinkat", "symlink", "symlinkat", "mkdir", "mkdirat", "rmdir",
    "chdir", "fchdir", "umask",
  ]
}
