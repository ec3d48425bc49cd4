// The tested part of rocSHMEM's interface: C++ functions in a namespace.
#pragma once

#include <cstddef>
#include <cstdint>

struct ihipStream_t;

namespace rocshmem {
void *rocshmem_malloc(size_t size);
int rocshmem_my_pe();
void rocshmem_putmem_on_stream(void *dest, const void *source, size_t nelems, int pe, ihipStream_t *stream);
void rocshmem_putmem_signal_on_stream(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal,
                                      int sig_op, int pe, ihipStream_t *stream);
void rocshmem_quiet_on_stream(ihipStream_t *stream);
}  // namespace rocshmem
