// Stands in for libhsa-runtime64: one function of each domain, and one that programs poll so often
// that it is traced only if requested by name.
#include <stdint.h>

uint64_t hsa_synthetic_core(uint64_t value) { return value + 1; }
uint64_t hsa_amd_synthetic(uint64_t value) { return value + 2; }
uint64_t hsa_ext_image_synthetic(uint64_t value) { return value + 3; }
uint64_t hsa_ext_program_synthetic(uint64_t value) { return value + 4; }
int64_t hsa_signal_load_relaxed(uint64_t signal) { return (int64_t)signal + 5; }
