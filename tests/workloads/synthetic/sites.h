// Functions of a library that is traced like libamdhip64 because of its file name and function
// names, and that does what no real library can be made to do on demand.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint64_t hipSyntheticPush(uint64_t a, uint64_t b);
uint64_t hipSyntheticEndbr(uint64_t a, uint64_t b);
uint64_t hipSyntheticStepped(uint64_t a, uint64_t b);
uint64_t hipSyntheticTail(uint64_t a, uint64_t b);
uint64_t hipSyntheticTarget(uint64_t a, uint64_t b);
uint64_t hipSyntheticAlias(uint64_t a, uint64_t b);

// Calls `callback` and returns one more than its result. The callback may recurse, block, jump away
// or never return.
uint64_t hipSyntheticCall(uint64_t (*callback)(void *), void *argument);

// Has more arguments than there are argument registers.
uint64_t hipSyntheticMany(uint64_t a, uint32_t b, uint16_t c, uint8_t d, uint64_t e, uint64_t f, uint64_t g,
                          uint32_t h, uint64_t i, uint16_t j, uint64_t k, uint64_t l);

#ifdef __cplusplus
}
#endif
