import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

extension DiskTree {
  /// Replaces the contents of a directory with the tree.
  ///
  /// - Throws: ``Skip`` if that fails, since that is not the engine's fault.
  func layOut(in directory: URL) throws {
    do {
      if FileManager.default.fileExists(atPath: directory.systemPath) {
        try FileManager.default.removeItem(at: directory)
      }
      try write(to: directory)
    } catch {
      throw Skip(reason: "The state after a power cut could not be created: \(error).")
    }
  }

  /// Writes everything into a directory, which must not exist.
  func write(to directory: URL) throws {
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let root = directory.systemPath
    var written: [Int: String] = [:]
    for (path, number) in paths {
      let path = root.hasSuffix("/") ? root + path : root + "/" + path
      if let first = written[number] {
        guard link(first, path) == 0 else { throw StorageError.posix(errno, "Linking \(path) failed") }
      } else if let file = files[number] {
        try file.write(to: path)
        written[number] = path
      } else {
        guard mkdir(path, 0o777) == 0 else { throw StorageError.posix(errno, "Creating \(path) failed") }
      }
    }
  }

  /// The tree of a directory's contents, with the extended attributes of the namespace `user`.
  init(contentsOf directory: URL) throws {
    self.init()
    var numbers: [String: Int] = ["": Self.root]
    for path in try FileManager.default.subpathsOfDirectory(atPath: directory.systemPath).sorted() {
      let url = directory.appending(path: path)
      var isDirectory = false
      guard FileManager.default.fileExists(atPath: url.systemPath, isDirectory: &isDirectory) else {
        continue
      }
      let number = numbers.count
      numbers[path] = number
      if isDirectory { addDirectory(number) } else { addFile(number) }
      let parent = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
      let name = String(path.split(separator: "/").last ?? "")
      apply(.link(DiskName(directory: numbers[parent] ?? Self.root, name: name), to: number))
      if !isDirectory { apply(.write(number, offset: 0, try Data(contentsOf: url))) }
    }
  }

  /// The first path that is in only one of the trees, or whose contents differ.
  ///
  /// - Parameter excluded: Files of this tree whose contents are not compared.
  func firstDifference(from other: DiskTree, without excluded: Set<Int>) -> String? {
    let mine = Dictionary(uniqueKeysWithValues: paths.map { ($0.path, $0.number) })
    let others = Dictionary(uniqueKeysWithValues: other.paths.map { ($0.path, $0.number) })
    for path in Set(mine.keys).union(others.keys).sorted() {
      guard let number = mine[path], let otherNumber = others[path] else { return path }
      if !excluded.contains(number), files[number]?.bytes != other.files[otherNumber]?.bytes { return path }
    }
    return nil
  }
}

extension DiskTree.File {
  fileprivate func write(to path: String) throws {
    let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o666)
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Creating \(path) failed") }
    defer { close(descriptor) }
    try bytes.withUnsafeBytes { bytes in
      var done = 0
      while done < bytes.count {
        let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
        let count = pwrite(descriptor, rest.baseAddress, rest.count, off_t(done))
        guard count > 0 else { throw StorageError.posix(errno, "Writing \(path) failed") }
        done += count
      }
    }
    for (name, value) in attributes {
      let error = ExtendedAttributes.set(name, value, of: descriptor)
      guard error == 0 else { throw StorageError.posix(error, "Setting an attribute of \(path) failed") }
    }
    if let time {
      let value = timespec(tv_sec: time.seconds, tv_nsec: time.nanoseconds)
      guard futimens(descriptor, [value, value]) == 0 else {
        throw StorageError.posix(errno, "Setting the time of \(path) failed")
      }
    }
  }
}

/// A function of Linux's C library that Swift's import of it lacks.
private enum ExtendedAttributes {
  private typealias Set = @convention(c) (Int32, UnsafePointer<CChar>, UnsafeRawPointer?, Int, Int32) -> Int32

  #if !canImport(Darwin)
    private static let function: Set? = {
      // The handle of the program itself stays valid for as long as it runs.
      guard let program = dlopen(nil, RTLD_NOW), let address = dlsym(program, "fsetxattr") else { return nil }
      return unsafeBitCast(address, to: Set.self)
    }()
  #endif

  /// Zero, or the number of the error.
  static func set(_ name: String, _ value: Data, of file: Int32) -> Int32 {
    value.withUnsafeBytes { bytes in
      #if canImport(Darwin)
        fsetxattr(file, name, bytes.baseAddress, bytes.count, 0, 0) == 0 ? 0 : errno
      #else
        guard let function else { return ENOTSUP }
        return function(file, name, bytes.baseAddress, bytes.count, 0) == 0 ? 0 : errno
      #endif
    }
  }
}
