// Calls each function of the library that stands in for libhsa-runtime64, N times.
#include <stdlib.h>

#include "../call_log.hpp"

extern "C" {
uint64_t hsa_synthetic_core(uint64_t value);
uint64_t hsa_amd_synthetic(uint64_t value);
uint64_t hsa_ext_image_synthetic(uint64_t value);
uint64_t hsa_ext_program_synthetic(uint64_t value);
int64_t hsa_signal_load_relaxed(uint64_t signal);
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoul(argv[1], nullptr, 10) : 1;
    for (uint64_t i = 0; i < count; i++) {
        LOGGED(hsa_synthetic_core, i);
        LOGGED(hsa_amd_synthetic, i);
        LOGGED(hsa_ext_image_synthetic, i);
        LOGGED(hsa_ext_program_synthetic, i);
        LOGGED(hsa_signal_load_relaxed, i);
    }
}
