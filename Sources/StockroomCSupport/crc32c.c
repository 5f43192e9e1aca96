#include "stockroom_crc32c.h"

#include <string.h>

#if defined(__x86_64__)

#include <nmmintrin.h>
#include <wmmintrin.h>
#define INSTRUCTION __attribute__((target("sse4.2,pclmul")))
#define STEP_8(remainder, word) ((uint32_t)_mm_crc32_u64(remainder, word))
#define STEP_1(remainder, byte) _mm_crc32_u8(remainder, byte)

bool stockroom_crc32c_has_instruction(void) {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

/// The remainder after as many zero bytes more as the factor stands for. For n bits that is x^(n - 33) modulo the polynomial: the product
/// of two remainders has one power of x too many, and the instruction multiplies by x^32.
INSTRUCTION static inline uint32_t shifted(uint32_t remainder, uint32_t factor) {
  __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)remainder), _mm_cvtsi32_si128((int)factor), 0);
  return STEP_8(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/// The bytes of a part of a block. The remainders of three parts are computed side by side: the instruction takes three cycles, but one can
/// begin in each.
#define PART 336
#define SHIFT_BY_PART 0xa60ce07b
#define SHIFT_BY_TWO_PARTS 0xcec3662e

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

static inline uint64_t word_at(const unsigned char *bytes) {
  uint64_t word;
  memcpy(&word, bytes, 8);
  return word;
}

INSTRUCTION uint32_t stockroom_crc32c_update(uint32_t remainder, const void *bytes, size_t count) {
  const unsigned char *next = bytes;
#if defined(PART)
  for (; count >= 3 * PART; next += 3 * PART, count -= 3 * PART) {
    uint32_t second = 0, third = 0;
    for (size_t offset = 0; offset < PART; offset += 8) {
      remainder = STEP_8(remainder, word_at(next + offset));
      second = STEP_8(second, word_at(next + PART + offset));
      third = STEP_8(third, word_at(next + 2 * PART + offset));
    }
    remainder = shifted(remainder, SHIFT_BY_TWO_PARTS) ^ shifted(second, SHIFT_BY_PART) ^ third;
  }
#endif
  for (; count >= 8; next += 8, count -= 8) remainder = STEP_8(remainder, word_at(next));
  for (; count > 0; next++, count--) remainder = STEP_1(remainder, *next);
  return remainder;
}

#else

uint32_t stockroom_crc32c_update(uint32_t remainder, const void *bytes, size_t count) { return remainder; }

#endif
