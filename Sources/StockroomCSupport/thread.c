#include "stockroom_thread.h"

bool stockroom_is_new_time_of_thread(int64_t time) {
  static _Thread_local int64_t last = -1;
  if (last == time) return false;
  last = time;
  return true;
}
