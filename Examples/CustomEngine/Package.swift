// swift-tools-version: 6.2

import PackageDescription

let package = Package(
  name: "CustomEngine",
  platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
  products: [.library(name: "CustomEngine", targets: ["CustomEngine"])],
  dependencies: [
    .package(name: "stockroom", path: "../..")
  ],
  targets: [
    .target(name: "CustomEngine", dependencies: [.product(name: "StockroomCore", package: "stockroom")]),
    .executableTarget(
      name: "custom-engine-worker",
      dependencies: ["CustomEngine", .product(name: "ConformanceKit", package: "stockroom")]),
    .executableTarget(
      name: "custom-engine-bench",
      dependencies: [
        "CustomEngine", .product(name: "BenchmarkKit", package: "stockroom"),
        .product(name: "StockroomSQLite", package: "stockroom"),
      ]),
    .testTarget(
      name: "CustomEngineTests",
      dependencies: [
        "CustomEngine", "custom-engine-worker", "custom-engine-bench",
        .product(name: "ConformanceKit", package: "stockroom"),
        .product(name: "BenchmarkKit", package: "stockroom"),
      ]),
  ],
  swiftLanguageModes: [.v6]
)
