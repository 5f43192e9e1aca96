#ifndef STOCKROOM_THREAD_H
#define STOCKROOM_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/// Whether the current thread's last call of this function was with another time, or this is its first call. Times are not negative.
bool stockroom_is_new_time_of_thread(int64_t time);

#endif
