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
/// The tests of one whose entries outlive the process have golden files.
let engines: [(name: String, hasGoldenFiles: Bool, storesWith: [Target.Dependency])] = [
  ("StockroomMemory", false, [.product(name: "HashTreeCollections", package: "swift-collections")]),
  ("StockroomFileSystem", true, []),
  ("StockroomSQLite", true, ["StockroomCSQLite"]),
  ("StockroomLMDB", true, ["StockroomCLMDB"]),
  ("StockroomLevelDB", true, ["StockroomCLevelDB"]),
  ("StockroomPostgreSQL", true, ["StockroomCPostgreSQL"]),
]
let engineNames = engines.map { Target.Dependency(stringLiteral: $0.name) }

/// SwiftPM makes every consumer clone what the declared products depend on, used or not. So the command is a product only
/// where the package is not a dependency: a consumer of one engine clones no argument parser. SwiftPM reads the
/// manifest of a dependency from a repository, whose root is `/`, and then from a checkout.
let isDependency =
  ["/.build/checkouts/", "/SourcePackages/checkouts/"].contains {
    Context.packageDirectory.contains($0)
  } || Context.packageDirectory == "/"

/// With this environment variable the package enables every trait, also when the examples depend on it: so they use the modules that
/// the tests have built.
let defaultTraits: Set<String> =
  isDependency || Context.environment["STOCKROOM_ALL_TRAITS"] == nil
  ? [] : ["Encryption", "Zstandard", "Instrumentation"]

/// For the modules that tests call millions of times: in CI they are optimized in debug builds too. A dependency may not have such flags.
/// ConformanceKit is not optimized: compiling it would take longer than the tests would become faster.
let optimizedSettings =
  settings
  + (isDependency || Context.environment["STOCKROOM_OPTIMIZED_CORE"] == nil
    ? [] : [SwiftSetting.unsafeFlags(["-O"])])

let package = Package(
  name: "stockroom",
  platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
  products: [
    .library(name: "Stockroom", targets: ["Stockroom"]),
    .library(name: "StockroomCore", targets: ["StockroomCore"]),
    .library(name: "StockroomStore", targets: ["StockroomStore"]),
    .library(name: "StockroomLayers", targets: ["StockroomLayers"]),
    .library(name: "StockroomTransfer", targets: ["StockroomTransfer"]),
    .library(name: "StockroomImport", targets: ["StockroomImport"]),
    .library(name: "ConformanceKit", targets: ["ConformanceKit"]),
    .library(name: "BenchmarkKit", targets: ["BenchmarkKit"]),
    .library(name: "StockroomTestSupport", targets: ["StockroomTestSupport"]),
    // For Benchmarks/Peers, a package of its own, only: it may change in any version.
    .library(name: "_StockroomEngines", targets: ["StockroomEngines"]),
  ] + engines.map { .library(name: $0.name, targets: [$0.name]) }
    + (isDependency ? [] : [.executable(name: "stockroom", targets: ["StockroomCLI"])]),
  traits: [
    .default(enabledTraits: defaultTraits),
    .trait(
      name: "Encryption",
      description:
        "Encrypted values in StockroomLayers, where the system has no CryptoKit: needs swift-crypto."),
    .trait(
      name: "Zstandard",
      description: "Compressed values in StockroomLayers are compressed by zstd: needs libzstd."),
    .trait(
      name: "Instrumentation",
      description:
        "Metrics and spans of calls in StockroomLayers: needs swift-metrics and swift-distributed-tracing."),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-crypto", "3.12.0"..<"5.0.0"),
    .package(url: "https://github.com/apple/swift-metrics", from: "2.5.0"),
    .package(url: "https://github.com/apple/swift-distributed-tracing", from: "1.3.0"),
  ],
  targets: [
    .target(name: "StockroomCSupport"),
    .target(name: "StockroomCore", dependencies: ["StockroomCSupport"], swiftSettings: optimizedSettings),
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
    .systemLibrary(
      name: "StockroomCPostgreSQL", pkgConfig: "libpq", providers: [.apt(["libpq-dev"]), .brew(["libpq"])]),

    .systemLibrary(
      name: "StockroomCZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"]), .brew(["zlib"])]),
    .systemLibrary(
      name: "StockroomCZstd", pkgConfig: "libzstd", providers: [.apt(["libzstd-dev"]), .brew(["zstd"])]),
    .target(
      name: "StockroomLayers",
      dependencies: [
        "StockroomCore", "StockroomStore", "StockroomCZlib",
        .target(name: "StockroomCZstd", condition: .when(traits: ["Zstandard"])),
        .product(
          name: "Crypto", package: "swift-crypto",
          condition: .when(platforms: [.linux, .android], traits: ["Encryption"])),
        .product(
          name: "CoreMetrics", package: "swift-metrics", condition: .when(traits: ["Instrumentation"])),
        .product(
          name: "Tracing", package: "swift-distributed-tracing",
          condition: .when(traits: ["Instrumentation"])),
      ],
      swiftSettings: settings),

    .target(
      name: "StockroomTransfer", dependencies: ["StockroomCore", "StockroomCZlib"], swiftSettings: settings),
    .target(
      name: "StockroomImport", dependencies: ["StockroomCore", "StockroomStore", "StockroomCSQLite"],
      swiftSettings: settings),

    .target(
      name: "StockroomEngines",
      dependencies: engineNames + [
        "StockroomCore", "StockroomLayers", "StockroomStore", "StockroomKitSupport",
      ],
      swiftSettings: settings),
    .target(
      name: "StockroomTestSupport", dependencies: ["StockroomCore"], swiftSettings: optimizedSettings),

    // What both kits share.
    .target(name: "StockroomKitSupport", dependencies: ["StockroomCore"], swiftSettings: optimizedSettings),
    .target(
      name: "ConformanceKit",
      dependencies: ["StockroomCore", "StockroomStore", "StockroomTestSupport", "StockroomKitSupport"],
      path: "ConformanceKit", swiftSettings: settings),
    .target(
      name: "BenchmarkKit", dependencies: ["StockroomCore", "StockroomStore", "StockroomKitSupport"],
      path: "Benchmarks/BenchmarkKit", swiftSettings: settings),
    .executableTarget(
      name: "StockroomCLI",
      dependencies: engineNames + [
        "StockroomCore", "StockroomStore", "StockroomLayers", "StockroomEngines", "ConformanceKit",
        "StockroomTransfer", "StockroomImport", "StockroomKitSupport", "BenchmarkKit", "StockroomCSQLite",
        "StockroomCLMDB",
        "StockroomCLevelDB",
        "StockroomCPostgreSQL",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ],
      swiftSettings: settings),

    // What the tests of several modules share.
    .target(
      name: "TestFixtures", dependencies: ["StockroomCore"], path: "Tests/TestFixtures",
      swiftSettings: settings),
    .testTarget(
      name: "PackageTests", dependencies: ["StockroomKitSupport", "TestFixtures"], swiftSettings: settings),
    .testTarget(
      name: "StockroomCoreTests", dependencies: ["StockroomCore", "StockroomKitSupport", "TestFixtures"],
      swiftSettings: settings),
    .testTarget(
      name: "StockroomStoreTests",
      dependencies: [
        "StockroomStore", "StockroomLayers", "StockroomMemory", "StockroomEngines", "StockroomTestSupport",
        "StockroomKitSupport", "TestFixtures",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "StockroomTests", dependencies: engineNames + ["Stockroom", "StockroomEngines", "TestFixtures"],
      swiftSettings: settings),
    .testTarget(
      name: "StockroomTestSupportTests",
      dependencies: ["StockroomMemory", "StockroomTestSupport", "ConformanceKit", "TestFixtures"],
      swiftSettings: settings),
    .testTarget(
      name: "StockroomLayersTests",
      dependencies: engineNames + [
        "StockroomLayers", "StockroomStore", "StockroomEngines", "StockroomTestSupport",
        "StockroomKitSupport",
        "ConformanceKit", "TestFixtures",
        .product(
          name: "MetricsTestKit", package: "swift-metrics", condition: .when(traits: ["Instrumentation"])),
        .product(
          name: "InMemoryTracing", package: "swift-distributed-tracing",
          condition: .when(traits: ["Instrumentation"])),
      ],
      swiftSettings: settings),
    .testTarget(
      name: "StockroomTransferTests",
      dependencies: [
        "StockroomCore", "StockroomMemory", "StockroomTransfer", "StockroomLayers", "StockroomEngines",
        "StockroomTestSupport", "StockroomKitSupport", "TestFixtures",
      ],
      resources: [.copy("Golden")], swiftSettings: settings),
    .testTarget(
      name: "StockroomImportTests",
      dependencies: [
        "StockroomCore", "StockroomStore", "StockroomImport", "StockroomMemory", "StockroomSQLite",
        "StockroomCSQLite", "StockroomTestSupport", "TestFixtures",
      ],
      resources: [.copy("Golden")], swiftSettings: settings),
    .testTarget(
      name: "AllEnginesTests",
      dependencies: engineNames + [
        "StockroomCore", "StockroomEngines", "StockroomKitSupport", "TestFixtures",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "ReadmeTests",
      dependencies: engineNames + [
        "Stockroom", "StockroomEngines", "StockroomLayers", "StockroomTransfer", "StockroomImport",
        "StockroomCLI",
        "StockroomTestSupport", "ConformanceKit", "BenchmarkKit", "TestFixtures",
      ],
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
      swiftSettings: optimizedSettings),
    .testTarget(
      name: "ConformanceKitTests",
      dependencies: [
        "StockroomCore", "StockroomMemory", "StockroomStore", "StockroomTestSupport", "StockroomKitSupport",
        "ConformanceKit", "FaultyEngineWorker", "TestFixtures",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "StockroomKitSupportTests", dependencies: ["StockroomKitSupport"], swiftSettings: settings),
    .testTarget(
      name: "BenchmarkKitTests",
      dependencies: [
        "StockroomCore", "StockroomMemory", "StockroomKitSupport", "BenchmarkKit", "TestFixtures",
      ],
      swiftSettings: settings),
    .testTarget(
      name: "StockroomCLITests",
      dependencies: [
        "StockroomCore", "StockroomMemory", "StockroomStore", "StockroomEngines", "StockroomKitSupport",
        "BenchmarkKit", "ConformanceKit", "StockroomCLI", "StockroomCSQLite", "TestFixtures",
      ],
      swiftSettings: settings),
  ]
    + engines.map {
      .target(
        name: $0.name, dependencies: ["StockroomCore"] + $0.storesWith,
        // Its trees are a library's, of which an optimized module has copies of its own that are optimized, too.
        swiftSettings: $0.name == "StockroomMemory" ? optimizedSettings : settings)
    }
    + engines.map {
      .testTarget(
        name: "\($0.name)Tests",
        // The command is the process that some checks kill.
        dependencies: [
          "StockroomCore", "ConformanceKit", "StockroomKitSupport", "TestFixtures", "StockroomEngines",
          "StockroomCLI",
          .init(stringLiteral: $0.name),
        ],
        resources: $0.hasGoldenFiles ? [.copy("Golden")] : [], swiftSettings: settings)
    }
)
