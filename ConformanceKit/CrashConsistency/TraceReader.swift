#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Turns the calls in a trace into changes of the files below a directory.
///
/// It tracks the same state as the system: the file of each path and each descriptor, the offset of each descriptor,
/// and the length of each file.
struct TraceReader {
  /// An open file description, which several descriptors can share.
  final class OpenFile {
    let node: Int
    var position = 0
    var appends: Bool
    /// Whether each write is synchronous.
    let isSynchronous: Bool

    init(node: Int, flags: Set<String>) {
      self.node = node
      appends = flags.contains("O_APPEND")
      isSynchronous = flags.contains("O_SYNC") || flags.contains("O_DSYNC")
    }
  }

  /// The effect of a call cannot be derived from the trace.
  struct UntraceableCall: Error {
    let reason: String
  }

  private let rootPath: String
  private let acknowledgement: (String) -> Int?
  private(set) var recording: DiskRecording
  /// The current state of the files.
  private(set) var live: DiskTree
  private var descriptors: [Int: OpenFile] = [:]
  private var workingDirectory: String
  private var nextNode: Int
  /// The umask of the process.
  private var umask = 0
  /// The permissions with which files and directories were created.
  private var modes: [Int: Int] = [:]
  /// The line of the trace at which each change was made.
  private var changeLines: [Int] = []

  /// - Parameters:
  ///   - root: The path of the directory, without symbolic links.
  ///   - initial: Its contents at the beginning.
  ///   - workingDirectory: The working directory of the traced process.
  ///   - acknowledgement: Returns the step that a message to the parent process acknowledges.
  init(
    root: String, initial: DiskTree, workingDirectory: String,
    acknowledgement: @escaping (String) -> Int?
  ) {
    rootPath = root
    self.workingDirectory = workingDirectory
    self.acknowledgement = acknowledgement
    recording = DiskRecording(initial: initial)
    live = initial
    nextNode = (initial.directories.keys.max() ?? 0) + (initial.files.keys.max() ?? 0) + 1
  }

  /// Reads a trace from its beginning to its end.
  static func recording(
    of calls: [TraceCall], root: String, initial: DiskTree, workingDirectory: String,
    acknowledgement: @escaping (String) -> Int?
  ) -> DiskRecording {
    var reader = TraceReader(
      root: root, initial: initial, workingDirectory: workingDirectory, acknowledgement: acknowledgement)
    do {
      for call in calls.sorted(by: { $0.effectLine < $1.effectLine }) { try reader.read(call) }
    } catch {
      reader.recording.limitation = (error as? UntraceableCall)?.reason ?? String(describing: error)
    }
    return reader.recording
  }

  // MARK: Recording

  mutating func change(_ change: DiskChange, of call: TraceCall, _ summary: String) {
    live.apply(change)
    changeLines.append(call.effectLine)
    recording.events.append(.init(event: .change(change), summary: summary))
  }

  /// A sync makes the changes durable that had been made when it began, but not those made while it was waiting.
  mutating func sync(_ scope: DiskSync.Scope, of call: TraceCall, _ summary: String) {
    var before = changeLines.count
    while before > 0, changeLines[before - 1] >= call.began { before -= 1 }
    recording.events.append(.init(event: .sync(DiskSync(scope: scope, before: before)), summary: summary))
  }

  /// The last change is durable at once.
  mutating func syncLastChange(_ node: Int, _ summary: String) {
    let sync = DiskSync(
      scope: .node(node, contentsOnly: true), before: changeLines.count, from: changeLines.count - 1)
    recording.events.append(.init(event: .sync(sync), summary: summary))
  }

  mutating func acknowledge(_ text: String) {
    guard let step = acknowledgement(text) else { return }
    recording.events.append(
      .init(event: .acknowledgement(step), summary: "acknowledgement of step \(step)"))
  }

  mutating func noteMap(of node: Int) { recording.mappedFiles.insert(node) }

  mutating func makeFile() -> Int {
    defer { nextNode += 1 }
    live.addFile(nextNode)
    recording.initial.addFile(nextNode)
    return nextNode
  }

  mutating func makeDirectory() -> Int {
    defer { nextNode += 1 }
    live.addDirectory(nextNode)
    recording.initial.addDirectory(nextNode)
    return nextNode
  }

  // MARK: Permissions

  mutating func setUmask(_ mask: TraceValue) { umask = mask.octal ?? 0 }

  /// Records the permissions with which a file or directory was created.
  mutating func noteMode(_ mode: TraceValue, of node: Int, _ name: DiskName) {
    // strace prints unusual modes by name. Assume that they give others access.
    let mode = (mode.octal ?? 0o7777) & ~umask
    modes[node] = mode
    if mode & 0o077 != 0, !isPrivate(name.directory) {
      recording.exposed.append("\(title(name)) (0\(String(mode, radix: 8)))")
    }
  }

  /// Whether a directory, or one above it, was created for its owner alone.
  private func isPrivate(_ directory: Int) -> Bool {
    if let mode = modes[directory], mode & 0o077 == 0 { return true }
    for (parent, names) in live.directories where names.values.contains(directory) {
      return isPrivate(parent)
    }
    return false
  }

  // MARK: Descriptors

  subscript(descriptor: TraceValue?) -> OpenFile? { descriptor?.number.flatMap { descriptors[$0] } }

  /// Assigns a file to a descriptor, or none if it is not below the root.
  mutating func assign(_ file: OpenFile?, to descriptor: Int?) {
    if let descriptor { descriptors[descriptor] = file }
  }

  mutating func close(_ range: ClosedRange<Int>) {
    for descriptor in Array(descriptors.keys) where range.contains(descriptor) {
      descriptors[descriptor] = nil
    }
  }

  mutating func changeDirectory(_ path: String) { workingDirectory = absolute(path, in: workingDirectory) }

  // MARK: Paths

  /// The place that a path leads to.
  enum Place {
    case outside
    /// An existing directory without a name of its own: the root, or the directory of a descriptor.
    case directory(Int)
    /// A name in a directory, whether or not it exists.
    case name(DiskName)
  }

  /// - Parameter directory: The descriptor of the directory to which a relative path belongs; nil for the working
  ///   directory.
  func place(_ path: TraceValue?, in directory: TraceValue? = nil) throws -> Place {
    guard let text = path?.text else { return .outside }
    let steps = text.split(separator: "/").filter { $0 != "." }.map(String.init)
    if steps.starts(with: ["proc", "self", "fd"]), steps.count > 3, let number = Int(steps[3]) {
      guard let open = descriptors[number] else { return .outside }
      return try place(Array(steps.dropFirst(4)), below: open.node)
    }
    if !text.hasPrefix("/"), let open = self[directory], !steps.contains("..") {
      // strace prints the path that a descriptor has at the time of the call, so the tracked location of the descriptor
      // is more reliable.
      return try place(steps, below: open.node)
    }
    let full = absolute(text, in: directory?.path ?? workingDirectory)
    guard full == rootPath || full.hasPrefix(rootPath + "/") else { return .outside }
    return try place(
      full.dropFirst(rootPath.count).split(separator: "/").map(String.init), below: DiskTree.root)
  }

  private func place(_ steps: [String], below directory: Int) throws -> Place {
    guard let last = steps.last else { return .directory(directory) }
    var parent = directory
    for step in steps.dropLast() {
      guard let next = live[DiskName(directory: parent, name: step)], live.isDirectory(next) else {
        throw UntraceableCall(reason: "The recording lost track of the directory \(step).")
      }
      parent = next
    }
    return .name(DiskName(directory: parent, name: last))
  }

  private func absolute(_ path: String, in directory: String) -> String {
    var components: [Substring] = []
    let whole = path.hasPrefix("/") ? path : directory + "/" + path
    for component in whole.split(separator: "/") where component != "." {
      if component == ".." { _ = components.popLast() } else { components.append(component) }
    }
    return "/" + components.joined(separator: "/")
  }

  /// The current name of a file or directory, for lists of operations.
  func title(_ node: Int) -> String {
    if node == DiskTree.root { return "the directory above" }
    for (directory, names) in live.directories {
      for (name, number) in names where number == node {
        return directory == DiskTree.root ? name : title(directory) + "/" + name
      }
    }
    return "a file without a name"
  }

  func title(_ name: DiskName) -> String {
    name.directory == DiskTree.root ? name.name : title(name.directory) + "/" + name.name
  }
}

extension TraceCall {
  /// The line of the trace at which the call is assumed to take effect.
  ///
  /// By default calls take effect at their end, after the concurrent calls of other threads. But another thread may get
  /// the same descriptor as soon as the call that closes it has begun, and a step is done before it is reported to the
  /// parent.
  var effectLine: Int { name == "close" || name == "close_range" || message != nil ? began : ended }

  /// The message that a worker sends to its parent: a ``WorkerReply`` with a message.
  var message: String? {
    guard name == "write", let text = arguments.dropFirst().first?.text, text.hasPrefix(#"{"message""#) else {
      return nil
    }
    return text
  }
}
