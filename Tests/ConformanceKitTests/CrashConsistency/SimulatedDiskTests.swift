import StockroomCore
import StockroomKitSupport
import Foundation
import Testing

@testable import ConformanceKit

@Suite("The simulated disk after a power cut")
struct DiskTests {
  @Test("A file that was synced is lost if its directory was not")
  func fileWithoutName() {
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("f"), to: file))
    disk.make(.write(file, offset: 0, Data("x".utf8)))
    disk.fsync(file)
    #expect(lost(disk) == [:])
    #expect(kept(disk) == ["f": "x"])
    disk.fsync(DiskTree.root)
    #expect(lost(disk) == ["f": "x"])
    #expect(disk.pending.isEmpty)
  }

  @Test("A name can be there without the contents")
  func nameWithoutFile() {
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("f"), to: file))
    disk.make(.write(file, offset: 0, Data("xyz".utf8)))
    disk.fsync(DiskTree.root)
    #expect(lost(disk) == ["f": ""])
    #expect(contents(disk.tree { _ in .lengthOnly }) == ["f": "\0\0\0"])
  }

  @Test("fdatasync covers contents and length, but no attributes; fsync covers all")
  func dataOnly() {
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("f"), to: file))
    disk.fsync(DiskTree.root)
    disk.make(.write(file, offset: 0, Data("x".utf8)))
    disk.make(.setAttribute(file, name: "user.a", Data("1".utf8)))
    disk.sync(DiskSync(scope: .node(file, contentsOnly: true), before: disk.nextNumber))
    #expect(lost(disk) == ["f": "x"])
    #expect(disk.tree { _ in .missing }.files[file]?.attributes == [:])
    disk.fsync(file)
    #expect(disk.tree { _ in .missing }.files[file]?.attributes == ["user.a": Data("1".utf8)])
  }

  @Test("A rename leaves the old name or the new one, in whichever directory is synced")
  func rename() {
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("old"), to: file))
    disk.make(.link(name("d"), to: directory))
    disk.fsync(DiskTree.root)
    disk.make(.rename(name("old"), to: DiskName(directory: directory, name: "new"), of: file))
    #expect(lost(disk) == ["old": "", "d": nil])
    #expect(kept(disk) == ["d": nil, "d/new": ""])
    disk.fsync(directory)
    #expect(lost(disk) == ["d": nil, "d/new": ""])
  }

  @Test("A file is not lost by moving into directories without names, unless that was synced")
  func moveIntoNewDirectory() {
    let inner = 3
    var tree = tree
    tree.addDirectory(inner)
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("old"), to: file))
    disk.fsync(DiskTree.root)
    disk.make(.link(name("d"), to: directory))
    disk.make(.link(DiskName(directory: directory, name: "e"), to: inner))
    disk.make(.rename(name("old"), to: DiskName(directory: inner, name: "new"), of: file))
    for missing in 1...2 {
      #expect(contents(disk.tree { $0.number == missing ? .missing : .whole })["old"] == "")
    }
    disk.fsync(inner)
    #expect(lost(disk) == [:])
  }

  @Test("A directory is not removed before its contents")
  func removedDirectory() {
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("d"), to: directory))
    disk.make(.link(DiskName(directory: directory, name: "f"), to: file))
    disk.sync(DiskSync(scope: .everything, before: disk.nextNumber))
    disk.make(.rename(DiskName(directory: directory, name: "f"), to: name("f"), of: file))
    disk.make(.unlink(name("d"), of: directory))
    #expect(contents(disk.tree { $0.number == 2 ? .missing : .whole }) == ["d": nil, "d/f": ""])
    #expect(kept(disk) == ["f": ""])
  }

  @Test("A write is torn between sectors, not within one")
  func torn() {
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("f"), to: file))
    disk.make(.resize(file, length: 1536))
    disk.fsync(file)
    disk.fsync(DiskTree.root)
    disk.make(.write(file, offset: 500, Data(repeating: 1, count: 600)))
    let tree = disk.tree { _ in .sectors(1..<2) }
    let bytes = tree.files[file]?.bytes ?? Data()
    #expect(bytes.count == 1536)
    #expect(bytes.indices.filter { bytes[$0] == 1 } == Array(512..<1024))
  }

  @Test(
    "A later write can be there without an earlier one, and durable data takes precedence over other data")
  func order() {
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("f"), to: file))
    disk.fsync(DiskTree.root)
    disk.make(.resize(file, length: 4))
    disk.make(.write(file, offset: 0, Data("ab".utf8)))
    disk.make(.write(file, offset: 1, Data("cd".utf8)))
    #expect(contents(disk.tree { $0.number == 3 ? .whole : .missing }) == ["f": "\0cd"])
    // As for a file that was opened with O_DSYNC.
    disk.sync(DiskSync(scope: .node(file, contentsOnly: true), before: 4, from: 3))
    #expect(lost(disk) == ["f": "\0cd"])
    #expect(contents(disk.tree { $0.number == 2 ? .whole : .missing }) == ["f": "acd"])
    #expect(kept(disk) == ["f": "acd\0"])
  }

  @Test("A sync does not cover changes after it began")
  func lateChange() {
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("f"), to: file))
    disk.fsync(DiskTree.root)
    disk.make(.write(file, offset: 0, Data("x".utf8)))
    disk.make(.write(file, offset: 1, Data("y".utf8)))
    disk.sync(DiskSync(scope: .node(file, contentsOnly: false), before: 2))
    #expect(lost(disk) == ["f": "x"])
  }

  @Test("The first states are nothing and everything, and each state is new at its moment")
  func states() {
    var random = SeededRandom(seed: 1)
    var disk = SimulatedDisk(tree)
    disk.make(.link(name("f"), to: file))
    disk.make(.write(file, offset: 0, Data(count: 2000)))
    let all = PowerCutStates(disk, isAfterChange: false).kinds(&random)
    #expect(all.prefix(2) == [[.nothing], [.everything]])
    #expect(all.joined().contains { $0.outcome(1) == .sectors(0..<2) })
    #expect(all.joined().contains { $0.outcome(1) == .lengthOnly && $0.outcome(0) == .whole })
    let new = PowerCutStates(disk, isAfterChange: true).kinds(&random).joined()
    #expect(new.allSatisfy { $0.outcome(1) != .missing })
    #expect(new.count > 10)
  }

  @Test("A tree is written to a directory and read from it")
  func files() throws {
    var tree = tree
    tree.apply(.link(name("d"), to: directory))
    tree.apply(.link(DiskName(directory: directory, name: "f"), to: file))
    tree.apply(.link(name("second name"), to: file))
    tree.apply(.write(file, offset: 3, Data("abc".utf8)))
    let url = FileManager.default.temporaryDirectory.appending(path: "tree-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: url) }
    try tree.write(to: url)
    let read = try DiskTree(contentsOf: url)
    #expect(contents(read) == ["d": nil, "d/f": "\0\0\0abc", "second name": "\0\0\0abc"])
    #expect(tree.firstDifference(from: read, without: []) == nil)
    tree.apply(.resize(file, length: 2))
    #expect(tree.firstDifference(from: read, without: []) == "d/f")
    #expect(tree.firstDifference(from: read, without: [file]) == nil)
  }

  private let file = 1
  private let directory = 2

  private var tree: DiskTree {
    var tree = DiskTree()
    tree.addFile(file)
    tree.addDirectory(directory)
    return tree
  }

  private func name(_ name: String) -> DiskName { DiskName(directory: DiskTree.root, name: name) }

  private func lost(_ disk: SimulatedDisk) -> [String: String?] { contents(disk.tree { _ in .missing }) }

  private func kept(_ disk: SimulatedDisk) -> [String: String?] { contents(disk.tree { _ in .whole }) }
}

extension SimulatedDisk {
  fileprivate mutating func fsync(_ node: Int) {
    sync(DiskSync(scope: .node(node, contentsOnly: false), before: nextNumber))
  }
}
