// swift-tools-version: 6.2

import PackageDescription

/// In CI a warning is an error. Elsewhere a newer compiler's new warning must not break a build.
let warnings: [SwiftSetting] = Context.environment["CI"] == nil ? [] : [.treatAllWarnings(as: .error)]

let settings: [SwiftSetting] =
  [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .enableUpcomingFeature("ExistentialAny"),
  ] + warnings

/// A storage engine: a library product and a target that depends on Core and on what it stores with.
let engines: [(name: String, storesWith: [Target.Dependency])] = [
  ("StockroomMemory", [.product(name: "HashTreeCollections", package: "swift-collections")]),
  ("StockroomFileSystem", []),
  ("StockroomSQLite", ["StockroomCSQLite"]),
  ("StockroomLMDB", ["StockroomCLMDB"]),
  ("StockroomLevelDB", ["StockroomCLevelDB"]),
]
let engineNames = engines.map { Target.Dependency(stringLiteral: $0.name) }

let package = Package(
  name: "stockroom",
  platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
  products: [
    .library(name: "Stockroom", targets: ["Stockroom"]),
    .library(name: "StockroomCore", targets: ["StockroomCore"]),
    .library(name: "StockroomStore", targets: ["StockroomStore"]),
    .library(name: "ConformanceKit", targets: ["ConformanceKit"]),
    .library(name: "BenchmarkKit", targets: ["BenchmarkKit"]),
    .executable(name: "stockroom", targets: ["StockroomCLI"]),
  ] + engines.map { .library(name: $0.name, targets: [$0.name]) },
  dependencies: [
    .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
  ],
  targets: [
    .target(name: "StockroomCore", swiftSettings: settings),
    .target(name: "StockroomStore", dependencies: ["StockroomCore"], swiftSettings: settings),
    .target(
      name: "Stockroom", dependencies: ["StockroomCore", "StockroomStore", "StockroomSQLite"],
      swiftSettings: settings),

    .systemLibrary(
      name: "StockroomCSQLite", pkgConfig: "sqlite3",
      providers: [.apt(["libsqlite3-dev"]), .brew(["sqlite3"])]),
    .systemLibrary(
      name: "StockroomCLMDB", pkgConfig: "lmdb", providers: [.apt(["liblmdb-dev"]), .brew(["lmdb"])]),
    // Neither Debian nor Homebrew ships a pkg-config file for LevelDB.
    .systemLibrary(name: "StockroomCLevelDB", providers: [.apt(["libleveldb-dev"]), .brew(["leveldb"])]),

    .target(
      name: "ConformanceKit", dependencies: ["StockroomCore", "StockroomStore"], path: "ConformanceKit",
      swiftSettings: settings),
    .target(
      name: "BenchmarkKit", dependencies: ["StockroomCore", "StockroomStore"],
      path: "Benchmarks/BenchmarkKit",
      swiftSettings: settings),
    .executableTarget(
      name: "StockroomCLI",
      dependencies: engineNames + [
        "StockroomCore", "StockroomStore", "ConformanceKit", "BenchmarkKit", "StockroomCSQLite",
        "StockroomCLMDB", "StockroomCLevelDB",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ],
      swiftSettings: settings),

    .testTarget(name: "StockroomCoreTests", dependencies: ["StockroomCore"], swiftSettings: settings),
    .testTarget(
      name: "StockroomStoreTests",
      dependencies: ["StockroomStore", "StockroomMemory", "ConformanceKit", "StockroomCLI"],
      swiftSettings: settings),
    .testTarget(
      name: "StockroomTests", dependencies: engineNames + ["Stockroom", "StockroomCLI"],
      swiftSettings: settings),
    .testTarget(
      name: "AllEnginesTests", dependencies: ["StockroomCLI", "StockroomCore"], swiftSettings: settings),
    .testTarget(
      name: "ReadmeTests",
      dependencies: engineNames + ["Stockroom", "StockroomCLI", "ConformanceKit", "BenchmarkKit"],
      swiftSettings: settings),
    // With the settings of a new Xcode project.
    .testTarget(
      name: "MainActorDefaultTests", dependencies: ["Stockroom", "StockroomMemory"],
      swiftSettings: settings + [
        .defaultIsolation(MainActor.self), .enableUpcomingFeature("InferIsolatedConformances"),
      ]),
    .executableTarget(
      name: "FaultyEngineWorker", dependencies: ["StockroomCore", "ConformanceKit"],
      path: "Tests/FaultyEngineWorker",
      swiftSettings: settings),
    .testTarget(
      name: "ConformanceKitTests",
      dependencies: ["StockroomCore", "StockroomStore", "ConformanceKit", "FaultyEngineWorker"],
      swiftSettings: settings),
    .testTarget(
      name: "BenchmarkKitTests", dependencies: ["StockroomCore", "BenchmarkKit"], swiftSettings: settings),
    .testTarget(
      name: "StockroomCLITests",
      dependencies: [
        "StockroomCore", "StockroomMemory", "StockroomStore", "BenchmarkKit", "ConformanceKit",
        "StockroomCLI",
      ],
      swiftSettings: settings),
  ]
    + engines.map {
      .target(name: $0.name, dependencies: ["StockroomCore"] + $0.storesWith, swiftSettings: settings)
    }
    + engines.map {
      .testTarget(
        name: "\($0.name)Tests",
        dependencies: ["StockroomCore", "ConformanceKit", "StockroomCLI", .init(stringLiteral: $0.name)],
        swiftSettings: settings)
    }
)
