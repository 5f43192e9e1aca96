import Foundation
import Testing

@testable import ConformanceKit

@Suite("Reading the output of strace")
struct TraceTests {
  @Test("A call is parsed with its arguments and its result")
  func call() throws {
    let call = try #require(
      calls(#"7 pwrite64(11<"# + hex("/d/f") + #">, "\x61\x00\x62", 3, 8192) = 3"#).first)
    #expect(call.process == 7)
    #expect(call.name == "pwrite64")
    #expect(call.result == 3)
    #expect(call.arguments[0] == .number(11, path: "/d/f"))
    #expect(call.arguments[1] == .bytes(Data("a\0b".utf8), isCutOff: false))
    #expect(call.arguments[3].number == 8192)
  }

  @Test("The two lines of an interrupted call are joined, and it ends where it is resumed")
  func interrupted() throws {
    let calls = calls(
      #"7 fsync(3<\x2f\x64> <unfinished ...>"#, #"8 close(5<\x2f\x65>) = 0"#, "7 <... fsync resumed>) = 0")
    #expect(calls.map(\.name) == ["close", "fsync"])
    #expect(calls[1].process == 7)
    #expect(calls[1].arguments == [.number(3, path: "/d")])
    #expect((calls[1].began, calls[1].ended) == (1, 3))
  }

  @Test("Structures, flags, comments and truncated texts are parsed")
  func values() throws {
    let calls = calls(
      #"1 writev(3<\x2f\x64>, [{iov_base="\x61", iov_len=1}, {iov_base="\x62\x63", iov_len=2}], 2) = 3"#,
      #"1 openat(AT_FDCWD<\x2f>, "\x66", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 4<\x2f\x66>"#,
      #"1 write(4<\x2f\x66>, "\x61"..., 90) = 90"#,
      #"1 utimensat(4<\x2f\x66>, NULL, [{tv_sec=5, tv_nsec=6} /* 1970 */, {tv_sec=7, tv_nsec=8} /* 1970 */], 0) = 0"#,
      #"1 clone3({flags=CLONE_VM|CLONE_FILES, stack=0x7f00} => {parent_tid=[2]}, 88) = 2"#,
      #"1 open("\x66", O_RDONLY) = -1 ENOENT (No such file or directory)"#)
    #expect(calls.count == 6)
    guard case .list(let parts) = calls[0].arguments[1] else { return #expect(Bool(false)) }
    #expect(
      parts[1]
        == .fields(["iov_base": .bytes(Data("bc".utf8), isCutOff: false), "iov_len": .number(2, path: nil)]))
    #expect(calls[1].arguments[0] == .symbols(["AT_FDCWD"], path: "/"))
    #expect(calls[1].arguments[2].symbols == ["O_RDWR", "O_CREAT", "O_CLOEXEC"])
    #expect(calls[2].arguments[1] == .bytes(Data("a".utf8), isCutOff: true))
    guard case .list(let times) = calls[3].arguments[2], case .fields(let last) = times[1] else {
      return #expect(Bool(false))
    }
    #expect(last["tv_nsec"]?.number == 8)
    #expect(calls[4].result == 2)
    #expect(!calls[5].succeeded)
  }

  @Test("Lines about signals and exits are not calls")
  func others() {
    #expect(calls("1 +++ exited with 0 +++", "1 --- SIGCHLD {si_signo=SIGCHLD} ---", "").isEmpty)
  }

  @Test("Writes follow the offset of the descriptor")
  func positions() {
    let recording = record(
      open("f", "O_WRONLY|O_CREAT", 3), write(3, "ab"), #"1 lseek(3, 6, SEEK_SET) = 6"#, write(3, "c"),
      "1 dup(3) = 4", write(4, "d"), open("f", "O_WRONLY|O_APPEND", 5), write(5, "e"),
      "1 ftruncate(5, 2) = 0", write(5, "f"))
    #expect(recording.limitation == nil)
    #expect(contents(recording.final) == ["f": "abf"])
    var before = recording
    before.events.removeLast(2)
    #expect(contents(before.final) == ["f": "ab\0\0\0\0cde"])
  }

  @Test("Paths relative to a directory descriptor are resolved")
  func pathsThroughDescriptors() {
    let recording = record(
      #"1 mkdir("\#(hex("/d/a"))", 0777) = 0"#, open("a", "O_RDONLY|O_DIRECTORY", 3),
      #"1 openat(AT_FDCWD, "\#(hex("/proc/self/fd/3/f"))", O_WRONLY|O_CREAT, 0644) = 4"#, write(4, "x"),
      #"1 rename("\#(hex("/proc/self/fd/3/f"))", "\#(hex("/proc/self/fd/3/g"))") = 0"#,
      #"1 openat(AT_FDCWD, "\#(hex("/proc/self/fd/9/f"))", O_WRONLY|O_CREAT, 0644) = 5"#, write(5, "y"))
    #expect(recording.limitation == nil)
    #expect(contents(recording.final) == ["a": nil, "a/g": "x"])
  }

  @Test("Names are followed through renames, links and directories that are open")
  func names() {
    let recording = record(
      #"1 mkdir("\#(hex("/d/a"))", 0777) = 0"#, open("a", "O_RDONLY|O_DIRECTORY", 3),
      #"1 openat(3<\#(hex("/d/a"))>, "\x66", O_WRONLY|O_CREAT, 0644) = 4"#, write(4, "x"),
      #"1 rename("\#(hex("/d/a"))", "\#(hex("/d/b"))") = 0"#,
      #"1 linkat(3<\#(hex("/d/b"))>, "\x66", 3<\#(hex("/d/b"))>, "\x67", 0) = 0"#,
      #"1 unlinkat(3<\#(hex("/d/b"))>, "\x66", 0) = 0"#, write(4, "y"))
    #expect(recording.limitation == nil)
    #expect(contents(recording.final) == ["b": nil, "b/g": "xy"])
  }

  @Test("A sync covers what was written before it began, and not what was written while it was waiting")
  func syncs() throws {
    let recording = record(
      open("f", "O_WRONLY|O_CREAT", 3), "1 fsync(3 <unfinished ...>", #"2 write(3, "\x61", 1) = 1"#,
      "1 <... fsync resumed>) = 0")
    guard case .sync(let sync) = try #require(recording.events.last).event else {
      return #expect(Bool(false))
    }
    #expect(sync.before == 1)
  }

  @Test("A descriptor that is reused while it is being closed refers to the new file")
  func reuse() {
    let recording = record(
      open("f", "O_WRONLY|O_CREAT", 3), "1 close(3 <unfinished ...>",
      #"2 openat(AT_FDCWD</>, "\#(hex("/d/g"))", O_WRONLY|O_CREAT, 0644) = 3"#, "1 <... close resumed>) = 0",
      write(3, "x"))
    #expect(contents(recording.final) == ["f": "", "g": "x"])
  }

  @Test("Operations that cannot be traced are reported")
  func limitations() {
    #expect(record("1 io_uring_setup(8, {flags=0}) = 3").limitation != nil)
    #expect(
      record(open("f", "O_WRONLY|O_CREAT", 3), "1 copy_file_range(9, NULL, 3, NULL, 5, 0) = 5").limitation
        != nil)
    #expect(record("1 clone3({flags=CLONE_VM|CLONE_VFORK, stack=0x7f00}, 88) = 2").limitation != nil)
    #expect(record(open("f", "O_RDONLY", 3)).limitation != nil)
  }

  @Test("Files that are mapped for writing are recorded")
  func maps() {
    let recording = record(
      open("f", "O_RDWR|O_CREAT", 3), "1 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3, 0) = 0x7f00",
      open("g", "O_RDWR|O_CREAT", 4), "1 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 4, 0) = 0x7f00")
    #expect(recording.mappedFiles.count == 1)
  }
}

// MARK: - Traces

private func hex(_ text: String) -> String {
  text.utf8.map { #"\x"# + (String($0, radix: 16).count == 1 ? "0" : "") + String($0, radix: 16) }.joined()
}

private func open(_ name: String, _ flags: String, _ descriptor: Int) -> String {
  #"1 openat(AT_FDCWD</>, "\#(hex("/d/\(name)"))", \#(flags), 0644) = \#(descriptor)"#
}

private func write(_ descriptor: Int, _ text: String) -> String {
  #"1 write(\#(descriptor), "\#(hex(text))", \#(text.utf8.count)) = \#(text.utf8.count)"#
}

private func calls(_ lines: String...) -> [TraceCall] {
  TraceText.calls(in: Data(lines.joined(separator: "\n").utf8))
}

private func record(_ lines: String...) -> DiskRecording {
  TraceReader.recording(
    of: TraceText.calls(in: Data(lines.joined(separator: "\n").utf8)), root: "/d", initial: DiskTree(),
    workingDirectory: "/"
  ) { _ in nil }
}

/// The paths in a tree with the contents of the files.
func contents(_ tree: DiskTree) -> [String: String?] {
  Dictionary(
    uniqueKeysWithValues: tree.paths.map { path, number in
      (path, tree.files[number].map { String(decoding: $0.bytes, as: UTF8.self) })
    })
}
