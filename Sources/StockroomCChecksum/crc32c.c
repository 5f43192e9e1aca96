#include "StockroomCChecksum.h"

#include <string.h>

#if defined(__x86_64__)

#include <nmmintrin.h>
#define INSTRUCTION __attribute__((target("sse4.2")))
#define STEP_8(remainder, word) ((uint32_t)_mm_crc32_u64(remainder, word))
#define STEP_1(remainder, byte) _mm_crc32_u8(remainder, byte)

bool stockroom_crc32c_has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }

#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))

#include <arm_acle.h>
#define INSTRUCTION __attribute__((target("crc")))
#define STEP_8(remainder, word) __crc32cd(remainder, word)
#define STEP_1(remainder, byte) __crc32cb(remainder, byte)

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
bool stockroom_crc32c_has_instruction(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
/// All of Apple's processors of 64 bits have it.
bool stockroom_crc32c_has_instruction(void) { return true; }
#endif

#else

bool stockroom_crc32c_has_instruction(void) { return false; }

#endif

#if defined(INSTRUCTION)

INSTRUCTION uint32_t stockroom_crc32c_update(uint32_t remainder, const void *bytes, size_t count) {
  const unsigned char *next = bytes;
  for (; count >= 8; next += 8, count -= 8) {
    uint64_t word;
    memcpy(&word, next, 8);
    remainder = STEP_8(remainder, word);
  }
  for (; count > 0; next++, count--) remainder = STEP_1(remainder, *next);
  return remainder;
}

#else

uint32_t stockroom_crc32c_update(uint32_t remainder, const void *bytes, size_t count) { return remainder; }

#endif
