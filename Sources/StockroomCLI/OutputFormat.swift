import ArgumentParser

/// The format of results.
enum OutputFormat: String, CaseIterable, ExpressibleByArgument {
  case text, markdown, json
}

/// The format of the results of checks.
enum ConformanceFormat: String, CaseIterable, ExpressibleByArgument {
  case text, markdown, json, junit
}
