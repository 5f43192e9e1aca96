#ifndef STOCKROOM_CRC32C_H
#define STOCKROOM_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Whether this processor has an instruction for CRC-32C.
bool stockroom_crc32c_has_instruction(void);

/// The remainder after `count` more bytes, by that instruction. Only where there is one.
uint32_t stockroom_crc32c_update(uint32_t remainder, const void *_Nullable bytes, size_t count);

#endif
