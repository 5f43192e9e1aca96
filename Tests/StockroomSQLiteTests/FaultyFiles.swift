import Foundation
import StockroomCSQLite
import StockroomCore

/// Wraps SQLite's VFS so that tests can make file calls fail or take longer.
enum FaultyFiles {
  /// The calls that a test can intercept. Closing cannot fail.
  enum Call {
    case read, write, sync, lock, close
  }

  private struct Fault: Sendable {
    let call: Call
    let directory: String
    let isFailing: @Sendable (_ path: String) -> Bool
  }

  private struct File: Sendable {
    let path: String
    /// The address of the original I/O methods.
    let methods: UInt
  }

  private typealias Methods = UnsafeMutablePointer<sqlite3_io_methods>
  private typealias FileHandle = UnsafeMutablePointer<sqlite3_file>
  private typealias Read = @convention(c) (FileHandle?, UnsafeMutableRawPointer?, Int32, Int64) -> Int32
  private typealias Write = @convention(c) (FileHandle?, UnsafeRawPointer?, Int32, Int64) -> Int32
  private typealias CallWithFlags = @convention(c) (FileHandle?, Int32) -> Int32
  private typealias Close = @convention(c) (FileHandle?) -> Int32

  private struct State {
    /// The last file that was opened at each address.
    var files: [UInt: File] = [:]
    var faults: [Int: Fault] = [:]
    var lastFault = 0
    /// The replacements of the original I/O methods, by the address of the original. A VFS has several sets
    /// of methods.
    var methods: [UInt: UInt] = [:]

    /// A copy of the original methods with the interceptable ones replaced. It is never freed.
    mutating func faultyMethods(in own: UnsafePointer<sqlite3_io_methods>) -> Methods {
      if let known = methods[UInt(bitPattern: own)].flatMap(Methods.init(bitPattern:)) { return known }
      let copy = Methods.allocate(capacity: 1)
      copy.initialize(to: own.pointee)
      copy.pointee.xRead = read
      copy.pointee.xWrite = write
      copy.pointee.xSync = sync
      copy.pointee.xLock = lock
      copy.pointee.xClose = close
      methods[UInt(bitPattern: own)] = UInt(bitPattern: copy)
      return copy
    }
  }

  private static let state = MutexProtected(State())
  private nonisolated(unsafe) static let system = sqlite3_vfs_find(nil)

  /// Installs the VFS for all databases that are opened later.
  static let areInstalled: Bool = {
    guard let system else { return false }
    let faulty = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
    faulty.initialize(to: system.pointee)
    faulty.pointee.pNext = nil
    faulty.pointee.zName = UnsafePointer(strdup("faulty"))
    faulty.pointee.xOpen = { _, name, file, flags, outFlags in
      guard let system = FaultyFiles.system, let open = system.pointee.xOpen else { return SQLITE_ERROR }
      let result = open(system, name, file, flags, outFlags)
      guard result == SQLITE_OK, let file, let own = file.pointee.pMethods, let name else { return result }
      return state.withLock { state in
        state.files[UInt(bitPattern: file)] = File(
          path: String(cString: name), methods: UInt(bitPattern: own))
        file.pointee.pMethods = UnsafePointer(state.faultyMethods(in: own))
        return SQLITE_OK
      }
    }
    return sqlite3_vfs_register(faulty, 1) == SQLITE_OK
  }()

  private static let read: Read = { file, buffer, count, offset in
    guard let read = methods(for: .read, on: file)?.pointee.xRead else { return SQLITE_IOERR | 1 << 8 }
    return read(file, buffer, count, offset)
  }

  private static let write: Write = { file, bytes, count, offset in
    guard let write = methods(for: .write, on: file)?.pointee.xWrite else { return SQLITE_IOERR | 3 << 8 }
    return write(file, bytes, count, offset)
  }

  private static let sync: CallWithFlags = { file, flags in
    guard let sync = methods(for: .sync, on: file)?.pointee.xSync else { return SQLITE_IOERR | 4 << 8 }
    return sync(file, flags)
  }

  private static let lock: CallWithFlags = { file, level in
    guard let lock = methods(for: .lock, on: file)?.pointee.xLock else { return SQLITE_BUSY }
    return lock(file, level)
  }

  private static let close: Close = { file in
    guard let close = methods(for: .close, on: file)?.pointee.xClose else { return SQLITE_IOERR }
    return close(file)
  }

  /// The original methods of a file, unless the call is to fail.
  private static func methods(for call: Call, on file: FileHandle?) -> UnsafePointer<sqlite3_io_methods>? {
    let address = UInt(bitPattern: file)
    let (known, faults) = state.withLock { ($0.files[address], Array($0.faults.values)) }
    guard let known else { return nil }
    var isFailing = false
    for fault in faults where fault.call == call && known.path.hasPrefix(fault.directory) {
      if fault.isFailing(known.path) { isFailing = true }
    }
    guard isFailing else { return UnsafePointer(bitPattern: known.methods) }
    errno = EIO
    return nil
  }

  /// Intercepts calls on the files below a directory until ``end(_:)``.
  ///
  /// - Parameters:
  ///   - directory: The path of the directory without symbolic links.
  ///   - isFailing: Whether the call fails. Receives the path of the file, and may block.
  /// - Returns: The argument for ``end(_:)``.
  static func begin(
    _ call: Call, in directory: String,
    _ isFailing: @escaping @Sendable (_ path: String) -> Bool = { _ in true }
  ) -> Int {
    state.withLock { state in
      state.lastFault += 1
      state.faults[state.lastFault] = Fault(call: call, directory: directory, isFailing: isFailing)
      return state.lastFault
    }
  }

  static func end(_ fault: Int) { state.withLock { $0.faults[fault] = nil } }

  /// Calls `body` while every read of a file below the directory fails.
  static func refusingReads<Result>(in directory: String, _ body: () throws -> Result) rethrows -> Result {
    let fault = begin(.read, in: directory)
    defer { end(fault) }
    return try body()
  }
}
