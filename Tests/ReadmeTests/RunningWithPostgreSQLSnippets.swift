// The Swift code of RunningWithPostgreSQL.md, which ReadmeTests compares with the page.

import StockroomPostgreSQL
import StockroomStore

struct Order: Codable, Sendable, Identifiable {
  var id: String
}

func orders() async throws -> Store<Order> {
  try await Store(
    storage: .postgreSQL("postgresql://shop@db1,db2/shop?sslmode=verify-full", namespace: "orders"))
}
