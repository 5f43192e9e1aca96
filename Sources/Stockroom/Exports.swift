// Importing Stockroom imports the Store and the SQLite engine.
@_exported import StockroomCore
@_exported import StockroomSQLite
@_exported import StockroomStore
