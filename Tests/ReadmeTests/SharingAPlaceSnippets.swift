// The Swift code of SharingAPlace.md, which ReadmeTests compares with the page.

import Foundation
import Stockroom

func openErrands(in directory: URL) async throws -> Store<Errand> {
  try await Store<Errand>(storage: .sqlite(directory: FileManager.Directory(url: directory)))
}

func watch(_ engine: some StorageEngine) async throws {
  for await change in try await engine.changes() {
    switch change {
    case .keys(let keys): print("changed:", keys)
    case .everything: print("anything may have changed")
    }
  }
}
