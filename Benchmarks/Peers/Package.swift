// swift-tools-version: 6.2

import PackageDescription

// A package of its own, so that users of Stockroom do not fetch its dependencies.

let settings: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
  .enableUpcomingFeature("ExistentialAny"),
]

func stockroom(_ names: String...) -> [Target.Dependency] {
  names.map { .product(name: $0, package: "stockroom") }
}

let package = Package(
  name: "Peers",
  platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
  products: [.executable(name: "peers", targets: ["PeersCommand"])],
  dependencies: [
    .package(name: "stockroom", path: "../.."),
    .package(url: "https://github.com/groue/GRDB.swift", exact: "7.10.0"),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
  ],
  targets: [
    // Modules of the C libraries: those of Stockroom are not products.
    .systemLibrary(
      name: "PeerSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"]), .brew(["sqlite3"])]),
    .systemLibrary(
      name: "PeerLMDB", pkgConfig: "lmdb", providers: [.apt(["liblmdb-dev"]), .brew(["lmdb"])]),
    .systemLibrary(name: "PeerLevelDB", providers: [.apt(["libleveldb-dev"]), .brew(["leveldb"])]),
    .systemLibrary(
      name: "PeerPostgreSQL", pkgConfig: "libpq", providers: [.apt(["libpq-dev"]), .brew(["libpq"])]),
    .systemLibrary(name: "PeerSystem"),

    .target(
      name: "PeerEngines",
      dependencies: stockroom("StockroomCore", "_StockroomEngines", "BenchmarkKit") + [
        "PeerSQLite", "PeerLMDB", "PeerLevelDB", "PeerPostgreSQL", "PeerSystem",
        .product(name: "GRDB", package: "GRDB.swift"),
      ],
      swiftSettings: settings),
    .target(
      name: "PerformanceBudget", dependencies: stockroom("StockroomCore", "BenchmarkKit"),
      swiftSettings: settings),
    .executableTarget(
      name: "PeersCommand",
      dependencies: stockroom("StockroomCore", "_StockroomEngines", "BenchmarkKit") + [
        "PeerEngines", "PerformanceBudget",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ],
      swiftSettings: settings),

    .testTarget(
      name: "PeerEnginesTests", dependencies: stockroom("StockroomCore", "BenchmarkKit") + ["PeerEngines"],
      swiftSettings: settings),
    .testTarget(
      name: "PerformanceBudgetTests",
      dependencies: stockroom("StockroomCore", "StockroomMemory", "BenchmarkKit") + ["PerformanceBudget"],
      swiftSettings: settings),
  ]
)
