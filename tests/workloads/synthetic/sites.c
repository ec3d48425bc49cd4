// The C half of the library that stands in for libamdhip64; see sites.S and sites.h.
#include "sites.h"

uint64_t hipSyntheticCall(uint64_t (*callback)(void *), void *argument) {
    uint64_t result = callback(argument);
    // Some work after the call, so that it is not a tail call.
    return result + 1;
}

uint64_t hipSyntheticMany(uint64_t a, uint32_t b, uint16_t c, uint8_t d, uint64_t e, uint64_t f, uint64_t g,
                          uint32_t h, uint64_t i, uint16_t j, uint64_t k, uint64_t l) {
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l;
}
