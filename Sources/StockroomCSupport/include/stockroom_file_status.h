#ifndef STOCKROOM_FILE_STATUS_H
#define STOCKROOM_FILE_STATUS_H

#include <stdint.h>

/// What identifies a file, and its size.
typedef struct {
  uint64_t device;
  uint64_t number;
  int64_t size;
} stockroom_file_status;

/// The status of the file at a path, after following symbolic links.
///
/// Like `stat`, but on Linux it does not read the times of the file. From version 6.13 on, Linux gives a file a new and precise time at
/// the first write after its times were read, and an ext4 without a journal writes that time to the disk in the next `fdatasync`.
///
/// Returns 0, or -1 with `errno` set.
int stockroom_status_of_path(const char *_Nonnull path, stockroom_file_status *_Nonnull status);

/// The same for the file that a descriptor has open, like `fstat`.
int stockroom_status_of_descriptor(int descriptor, stockroom_file_status *_Nonnull status);

#endif
