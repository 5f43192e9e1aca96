#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension TraceReader {
  /// Applies the effect of a call to the recorded state. Failed calls have no effect.
  mutating func read(_ call: TraceCall) throws {
    let arguments = call.arguments + Array(repeating: .number(0, path: nil), count: 6)
    if let message = call.message, self[arguments[0]] == nil { acknowledge(message) }
    guard call.succeeded, let result = call.result else { return }
    switch call.name {
    case "open": try open(call, arguments[0], in: nil, arguments[1].symbols, arguments[2])
    case "creat": try open(call, arguments[0], in: nil, creation, arguments[1])
    case "openat": try open(call, arguments[1], in: arguments[0], arguments[2].symbols, arguments[3])
    case "umask": setUmask(arguments[0])
    case "close": close((arguments[0].number ?? -1)...(arguments[0].number ?? -1))
    case "close_range":
      close((arguments[0].number ?? 0)...max(arguments[0].number ?? 0, arguments[1].number ?? .max))
    case "dup", "dup2", "dup3": assign(self[arguments[0]], to: result)
    case "fcntl": control(arguments, result)
    case "chdir": changeDirectory(arguments[0].text ?? "/")
    case "fchdir": changeDirectory(arguments[0].path ?? "/")
    case "lseek": self[arguments[0]]?.position = result
    case "read", "readv": self[arguments[0]]?.position += result
    case "write", "writev", "pwrite64", "pwritev", "pwritev2": try write(call, arguments, result)
    case "ftruncate", "truncate", "fallocate": try resize(call, arguments)
    case "mmap": map(arguments)
    case "fsync", "fdatasync", "sync", "syncfs": sync(call, arguments[0])
    case "copy_file_range", "sendfile", "splice": try checkCopying(call, arguments)
    case "io_uring_setup":
      throw UntraceableCall(reason: "Operations through io_uring cannot be recorded.")
    case "fork", "vfork", "clone", "clone3": try checkProcess(call)
    case let name where name.contains("xattr"): try setAttribute(call, arguments)
    case "utimensat": try setTime(call, arguments)
    default: try readName(call, arguments)
    }
  }

  private var creation: Set<String> { ["O_CREAT", "O_TRUNC", "O_WRONLY"] }

  // MARK: Opening

  private mutating func open(
    _ call: TraceCall, _ path: TraceValue, in directory: TraceValue?, _ flags: Set<String>,
    _ mode: TraceValue
  ) throws {
    assign(nil, to: call.result)
    switch try place(path, in: directory) {
    case .outside: return
    case .directory(let node): assign(OpenFile(node: node, flags: flags), to: call.result)
    case .name(let name):
      if flags.contains("O_TMPFILE") || flags.contains("__O_TMPFILE") {
        return assign(OpenFile(node: makeFile(), flags: flags), to: call.result)
      }
      let node = try live[name] ?? create(call, name, flags, mode)
      assign(OpenFile(node: node, flags: flags), to: call.result)
      if flags.contains("O_TRUNC"), live.length(of: node) > 0 {
        change(.resize(node, length: 0), of: call, "emptying of \(title(name)) by open")
      }
    }
  }

  private mutating func create(
    _ call: TraceCall, _ name: DiskName, _ flags: Set<String>, _ mode: TraceValue
  ) throws -> Int {
    guard flags.contains("O_CREAT") else {
      throw UntraceableCall(reason: "The recording lost track of \(title(name)).")
    }
    let node = makeFile()
    change(.link(name, to: node), of: call, "creation of \(title(name))")
    noteMode(mode, of: node, name)
    return node
  }

  private mutating func control(_ arguments: [TraceValue], _ result: Int) {
    let command = arguments[1].symbols
    if command.contains("F_DUPFD") || command.contains("F_DUPFD_CLOEXEC") {
      assign(self[arguments[0]], to: result)
    } else if command.contains("F_SETFL") {
      self[arguments[0]]?.appends = arguments[2].symbols.contains("O_APPEND")
    }
  }

  private mutating func map(_ arguments: [TraceValue]) {
    guard let file = self[arguments[4]], arguments[2].symbols.contains("PROT_WRITE"),
      !arguments[3].symbols.isDisjoint(with: ["MAP_SHARED", "MAP_SHARED_VALIDATE"])
    else { return }
    noteMap(of: file.node)
  }

  // MARK: Contents

  private mutating func write(_ call: TraceCall, _ arguments: [TraceValue], _ result: Int) throws {
    guard let file = self[arguments[0]], result > 0 else { return }
    let bytes = try contents(arguments[1]).prefix(result)
    guard bytes.count == result else {
      throw UntraceableCall(reason: "A write of \(result) bytes is too large to be recorded.")
    }
    var offset = file.position
    let flags = call.name == "pwritev2" ? arguments[4].symbols : []
    let isPositioned = call.name.hasPrefix("p") && arguments[3].number != -1
    if file.appends || flags.contains("RWF_APPEND") {
      // Also for pwrite, as documented under "Bugs" in its manual page.
      offset = live.length(of: file.node)
    } else if isPositioned {
      offset = arguments[3].number ?? 0
    }
    let summary = "write of \(result) bytes at \(offset) of \(title(file.node))"
    change(.write(file.node, offset: offset, Data(bytes)), of: call, summary)
    if !isPositioned { file.position = offset + result }
    if file.isSynchronous || !flags.isDisjoint(with: ["RWF_DSYNC", "RWF_SYNC"]) {
      syncLastChange(file.node, "sync by the \(summary)")
    }
  }

  private func contents(_ value: TraceValue) throws -> Data {
    switch value {
    case .bytes(let bytes, false): return bytes
    case .list(let parts):
      return try parts.reduce(into: Data()) { all, part in
        if case .fields(let fields) = part, let base = fields["iov_base"] { all += try contents(base) }
      }
    default: return Data()
    }
  }

  private mutating func resize(_ call: TraceCall, _ arguments: [TraceValue]) throws {
    let node: Int?
    if call.name == "truncate" {
      guard case .name(let name) = try place(arguments[0]) else { return }
      node = live[name]
    } else {
      node = self[arguments[0]]?.node
    }
    guard let node else { return }
    let old = live.length(of: node)
    var new = arguments[1].number ?? 0
    if call.name == "fallocate" {
      let isPlain = arguments[1].number == 0
      if !isPlain, !arguments[1].symbols.isSubset(of: ["FALLOC_FL_KEEP_SIZE"]) {
        throw UntraceableCall(reason: "Holes that fallocate punches in \(title(node)) cannot be recorded.")
      }
      new = isPlain ? max(old, (arguments[2].number ?? 0) + (arguments[3].number ?? 0)) : old
    }
    if new != old {
      change(
        .resize(node, length: new), of: call, "\(call.name) of \(title(node)) from \(old) to \(new) bytes")
    }
  }

  private func checkCopying(_ call: TraceCall, _ arguments: [TraceValue]) throws {
    let target = call.name == "sendfile" ? arguments[0] : arguments[2]
    if let file = self[target] {
      throw UntraceableCall(
        reason: "Data that \(call.name) copies to \(title(file.node)) cannot be recorded.")
    }
  }

  private func checkProcess(_ call: TraceCall) throws {
    let flags: Set<String> = call.arguments.reduce(into: []) { all, value in
      if case .fields(let fields) = value { all.formUnion(fields["flags"]?.symbols ?? []) }
      all.formUnion(value.symbols)
    }
    // Older systems print `flags=…` without braces. Then the scanner only returns the name.
    if !flags.contains("CLONE_FILES"), !flags.contains("flags") {
      throw UntraceableCall(
        reason: "The engine starts processes of its own, which the recording cannot follow.")
    }
  }

  // MARK: Syncing

  private mutating func sync(_ call: TraceCall, _ descriptor: TraceValue) {
    if call.name == "sync" { return sync(.everything, of: call, "sync") }
    guard let file = self[descriptor] else { return }
    if call.name == "syncfs" { return sync(.everything, of: call, "syncfs") }
    sync(
      .node(file.node, contentsOnly: call.name == "fdatasync"), of: call,
      "\(call.name) of \(title(file.node))")
  }

  // MARK: Attributes

  /// The file of a descriptor or a path.
  func node(_ value: TraceValue) throws -> Int? {
    if let file = self[value] { return file.node }
    guard case .name(let name) = try place(value) else { return nil }
    return live[name]
  }

  private mutating func setAttribute(_ call: TraceCall, _ arguments: [TraceValue]) throws {
    guard let node = try node(arguments[0]), let name = arguments[1].text else { return }
    var value: Data?
    if call.name.contains("set"), case .bytes(let bytes, _) = arguments[2] { value = bytes }
    change(.setAttribute(node, name: name, value), of: call, "\(call.name) of \(title(node))")
  }

  private mutating func setTime(_ call: TraceCall, _ arguments: [TraceValue]) throws {
    var node = self[arguments[0]]?.node
    if arguments[1].text != nil {
      guard case .name(let name) = try place(arguments[1], in: arguments[0]) else { return }
      node = live[name]
    }
    guard let node, case .list(let times) = arguments[2], let last = times.last,
      case .fields(let fields) = last, let seconds = fields["tv_sec"]?.number,
      let nanoseconds = fields["tv_nsec"]?.number
    else { return }
    let time = FileTime(seconds: seconds, nanoseconds: nanoseconds)
    change(.setTime(node, time), of: call, "setting of the time of \(title(node))")
  }
}
