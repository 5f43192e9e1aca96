/// The changes that an engine has made to its files, in order.
struct DiskRecording: Sendable {
  struct Event: Sendable {
    let event: DiskEvent
    /// The call, as in a list of operations: "fsync of store/journal".
    let summary: String
  }

  /// The initial contents and, without names, the files and directories that were created later.
  var initial: DiskTree
  var events: [Event] = []
  /// The files that were mapped for writing, which leaves no trace in the recording.
  ///
  /// In all states that a power cut could have left they contain what calls have written to them, and nothing that was
  /// written through a map: that may be missing, too. Engines map files that they make again after the machine has died, such as
  /// the shared memory of SQLite and the lock file of LMDB. One that kept data so could not be checked, and is found
  /// out by ``firstDifference(from:)`` or when it misses its data after the last call.
  var mappedFiles: Set<Int> = []
  /// The files and directories that were made so that others could use them, where others could get to them: with their modes.
  var exposed: [String] = []
  /// The operation that cannot be simulated, as a sentence. Nil if all can.
  var limitation: String?

  /// The contents without a power cut.
  var final: DiskTree {
    var tree = initial
    for case .change(let change) in events.map(\.event) { tree.apply(change) }
    return tree
  }

  /// What the engine's processes are asked of the system: every call that changes files or says how others are to be
  /// understood. Systems that do not know one of them leave it out.
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

  /// Every call that makes, names or removes files, or says how such calls are to be understood.
  static let callsOfNames = [
    "open", "openat", "creat", "close", "close_range", "dup", "dup2", "dup3", "fcntl", "rename", "renameat",
    "renameat2", "link", "linkat", "unlink", "unlinkat", "symlink", "symlinkat", "mkdir", "mkdirat", "rmdir",
    "chdir", "fchdir", "umask",
  ]
}
