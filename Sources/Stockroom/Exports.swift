// With batteries: who imports Stockroom has the Store and SQLite.
@_exported import StockroomCore
@_exported import StockroomSQLite
@_exported import StockroomStore
