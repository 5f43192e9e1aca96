#include "stockroom_thread.h"

bool stockroom_is_new_time_of_thread(int64_t time) {
  static _Thread_local int64_t last;
  static _Thread_local bool has_last;
  if (has_last && last == time) return false;
  last = time;
  has_last = true;
  return true;
}
