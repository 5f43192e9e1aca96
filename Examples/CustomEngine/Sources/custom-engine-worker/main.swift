import ConformanceKit
import CustomEngine

// Opens the engine in a process of its own, for the checks that kill a process or need two.
try await ConformanceWorker.serve { try JSONStorageEngine(directory: $0) }
