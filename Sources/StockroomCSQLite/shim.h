#include <sqlite3.h>

// Swift calls no functions with a variable number of arguments.

/// Lets a connection close without moving the write-ahead log into the database and deleting it:
/// https://sqlite.org/c3ref/c_dbconfig_defensive.html
static inline int stockroom_sqlite3_no_checkpoint_on_close(sqlite3 *connection) {
  return sqlite3_db_config(connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)0);
}
