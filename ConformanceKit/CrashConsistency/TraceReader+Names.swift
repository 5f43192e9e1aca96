extension TraceReader {
  /// Applies the effect of a call on names to the recorded state.
  mutating func readName(_ call: TraceCall, _ arguments: [TraceValue]) throws {
    switch call.name {
    case "mkdir": try makeDirectory(call, try place(arguments[0]), arguments[1])
    case "mkdirat": try makeDirectory(call, try place(arguments[1], in: arguments[0]), arguments[2])
    case "rmdir", "unlink": try remove(call, try place(arguments[0]))
    case "unlinkat": try remove(call, try place(arguments[1], in: arguments[0]))
    case "rename": try rename(call, try place(arguments[0]), try place(arguments[1]))
    case "renameat", "renameat2":
      if arguments[4].symbols.contains("RENAME_EXCHANGE") {
        throw UntraceableCall(reason: "Exchanging two names cannot be recorded.")
      }
      try rename(call, try place(arguments[1], in: arguments[0]), try place(arguments[3], in: arguments[2]))
    case "link": try link(call, try node(arguments[0]), try place(arguments[1]))
    case "linkat":
      try link(call, try linkedNode(arguments), try place(arguments[3], in: arguments[2]))
    case "symlink", "symlinkat":
      let isAt = call.name == "symlinkat"
      if case .name(let name) = try place(arguments[isAt ? 2 : 1], in: isAt ? arguments[1] : nil) {
        throw UntraceableCall(reason: "The symbolic link \(title(name)) cannot be recorded.")
      }
    default: return
    }
  }

  private mutating func makeDirectory(_ call: TraceCall, _ place: Place, _ mode: TraceValue) throws {
    guard case .name(let name) = place else { return }
    let node = makeDirectory()
    change(.link(name, to: node), of: call, "\(call.name) of \(title(name))")
    noteMode(mode, of: node, name)
  }

  private mutating func remove(_ call: TraceCall, _ place: Place) throws {
    guard case .name(let name) = place else { return }
    guard let node = live[name] else {
      throw UntraceableCall(reason: "The recording lost track of \(title(name)).")
    }
    change(.unlink(name, of: node), of: call, "removal of \(title(name))")
  }

  private mutating func rename(_ call: TraceCall, _ old: Place, _ new: Place) throws {
    switch (old, new) {
    case (.name(let old), .name(let new)):
      guard let node = live[old] else {
        throw UntraceableCall(reason: "The recording lost track of \(title(old)).")
      }
      // Two names of one file: by POSIX, nothing happens.
      if live[new] == node { return }
      change(.rename(old, to: new, of: node), of: call, "rename of \(title(old)) to \(title(new))")
    case (.outside, .outside), (.directory, _), (_, .directory): return
    default:
      throw UntraceableCall(
        reason: "Moving a file into or out of the store's directory cannot be recorded.")
    }
  }

  private func linkedNode(_ arguments: [TraceValue]) throws -> Int? {
    let path = arguments[1].text ?? ""
    if path.isEmpty { return self[arguments[0]]?.node }
    if path.hasPrefix("/proc/self/fd/"), let number = Int(path.dropFirst("/proc/self/fd/".count)) {
      return self[.number(number, path: nil)]?.node
    }
    guard case .name(let name) = try place(arguments[1], in: arguments[0]) else { return nil }
    return live[name]
  }

  private mutating func link(_ call: TraceCall, _ node: Int?, _ place: Place) throws {
    guard case .name(let name) = place else { return }
    guard let node else {
      throw UntraceableCall(reason: "The recording lost track of what \(title(name)) links to.")
    }
    change(.link(name, to: node), of: call, "link of \(title(node)) as \(title(name))")
  }
}
