// swift-tools-version: 6.2

import PackageDescription

let settings: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .enableUpcomingFeature("ExistentialAny"),
]

let package = Package(
  name: "LiveNotes",
  // `Observations`, which the counter uses, requires macOS 26.
  platforms: [.macOS("26.0")],
  dependencies: [
    .package(name: "stockroom", path: "../.."),
    .package(
      url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0", traits: ["FullFoundation"]),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-log", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-metrics", from: "2.9.0"),
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
    .package(url: "https://github.com/apple/swift-nio-extras", from: "1.34.1"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
  ],
  targets: [
    .executableTarget(
      name: "LiveNotes",
      dependencies: [
        .product(name: "Stockroom", package: "stockroom"),
        .product(name: "StockroomMemory", package: "stockroom"),
        .product(name: "StockroomFileSystem", package: "stockroom"),
        .product(name: "StockroomLMDB", package: "stockroom"),
        .product(name: "StockroomLevelDB", package: "stockroom"),
        .product(name: "StockroomPostgreSQL", package: "stockroom"),
        .product(name: "Hummingbird", package: "hummingbird"),
        .product(name: "HummingbirdCore", package: "hummingbird"),
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
        .product(name: "Logging", package: "swift-log"),
        .product(name: "CoreMetrics", package: "swift-metrics"),
        .product(name: "NIOCore", package: "swift-nio"),
        .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
      ],
      resources: [.copy("View/Page")], swiftSettings: settings),
    .testTarget(name: "LiveNotesTests", dependencies: ["LiveNotes"], swiftSettings: settings),
  ]
)
