#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // for `statx`
#endif

#include "stockroom_file_status.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#if defined(__linux__)
#include <sys/sysmacros.h>
#endif

static int converted(int result, const struct stat *found, stockroom_file_status *status) {
  if (result != 0) return result;
  status->device = (uint64_t)found->st_dev;
  status->number = (uint64_t)found->st_ino;
  status->size = (int64_t)found->st_size;
  return 0;
}

#if defined(__linux__) && defined(STATX_INO)

/// Returns 0, or -1 with `errno` set, or 1 if the system has no such call or a sandbox does not allow it.
static int status_without_times(int directory, const char *path, int flags, stockroom_file_status *status) {
  struct statx found;
  if (statx(directory, path, flags, STATX_INO | STATX_SIZE, &found) != 0) {
    return errno == ENOSYS || errno == EPERM ? 1 : -1;
  }
  status->device = (uint64_t)makedev(found.stx_dev_major, found.stx_dev_minor);
  status->number = (uint64_t)found.stx_ino;
  status->size = (int64_t)found.stx_size;
  return 0;
}

#else

#define status_without_times(directory, path, flags, status) 1

#endif

int stockroom_status_of_path(const char *path, stockroom_file_status *status) {
  int result = status_without_times(AT_FDCWD, path, 0, status);
  if (result <= 0) return result;
  struct stat found;
  return converted(stat(path, &found), &found, status);
}

int stockroom_status_of_descriptor(int descriptor, stockroom_file_status *status) {
  int result = status_without_times(descriptor, "", AT_EMPTY_PATH, status);
  if (result <= 0) return result;
  struct stat found;
  return converted(fstat(descriptor, &found), &found, status);
}
