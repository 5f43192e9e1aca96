#include <sqlite3.h>

// What Swift cannot say: calls of functions with a variable number of arguments, and looks at memory that other processes change.

/// Whether a connection closes without moving the write-ahead log into the database and deleting it:
/// https://sqlite.org/c3ref/c_dbconfig_defensive.html
static inline int stockroom_sqlite3_no_checkpoint_on_close(sqlite3 *connection, int is_set) {
  return sqlite3_db_config(connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, is_set, (int *)0);
}

/// The field iChange in the header of the index of the write-ahead log, "a counter that is incremented with each transaction":
/// https://sqlite.org/walformat.html#the_wal_index_header
///
/// `checksum` gets aFrameCksum, which is another one after each transaction, and stays when the log starts over or is recovered.
///
/// There are two copies of the header, of which the second is written first. SQLITE_BUSY: they differ, so that another process is just
/// writing them, or has died while it did. The connection must have read something since it was opened.
static inline int stockroom_sqlite3_commit_number(
    sqlite3 *connection, unsigned int *number, unsigned long long *checksum) {
  sqlite3_file *file = 0;
  int result = sqlite3_file_control(connection, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (result != SQLITE_OK) return result;
  if (!file || !file->pMethods || file->pMethods->iVersion < 2) return SQLITE_NOTFOUND;
  volatile void *index = 0;
  result = file->pMethods->xShmMap(file, 0, 32768, 0, &index);
  if (result != SQLITE_OK) return result;
  if (!index) return SQLITE_NOTFOUND;
  const volatile unsigned int *header = (const volatile unsigned int *)index;
  unsigned int found[3] = {header[2], header[6], header[7]};
  file->pMethods->xShmBarrier(file);
  if (header[14] != found[0] || header[18] != found[1] || header[19] != found[2]) return SQLITE_BUSY;
  *number = found[0];
  *checksum = (unsigned long long)found[1] << 32 | found[2];
  return SQLITE_OK;
}
