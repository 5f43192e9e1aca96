import ConformanceKit
import CustomEngine

// Opens the engine in a process of its own, for the checks that kill one or need two.
try await ConformanceWorker.serve { try JSONStorageEngine(directory: $0) }
