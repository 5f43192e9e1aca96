// The Swift code of BackingUp.md, which ReadmeTests compares with the page.

import Foundation
import StockroomCore
import StockroomTransfer

func backUpPages(_ pages: some BackupEngine, in folder: URL) async throws {
  let name = Date.now.formatted(.iso8601.year().month().day())
  try await pages.backUp(to: .init(url: folder.appending(path: name)))
}

func archiveNotes(_ notes: some StorageEngine, to archive: URL) async throws {
  try await notes.dump(to: archive, replacing: true) { progress in
    print(progress.entryCount)
  }
}

func mergeNotes(from archive: URL, into notes: some StorageEngine) async throws {
  let summary = try await Archive.verify(archive)
  guard summary.isSnapshot else { return }
  try await notes.restore(from: archive, merging: true)
}
