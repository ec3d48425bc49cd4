// Stand-ins for the functions that `hostile` calls, in a library that gputrace takes for the
// runtime's (LIBRARY selects which).
#include <stdint.h>
#if LIBRARY == 1
// Reads the string from the second call on only.
int roctxMarkA(const char *message)
{
    static int calls;
    return calls++ ? *(const volatile char *)message : 0;
}
#elif LIBRARY == 2
int hipMalloc(void **pointer, unsigned long size) { *pointer = (void *)(size + 16); return 0; }
#elif LIBRARY == 4
// Functions that store a value through a pointer, for a library that exists in many copies.
#define VALUE(name) int name(int *value) { return *value = 1; }
VALUE(hipGetDevice)
VALUE(hipGetDeviceCount)
VALUE(hipRuntimeGetVersion)
VALUE(hipDriverGetVersion)
VALUE(hipDeviceGetSharedMemConfig)
VALUE(hipDeviceGetCacheConfig)
VALUE(hipGetDeviceFlags)
VALUE(hipStreamCreate)
VALUE(hipEventCreate)
VALUE(hipCtxGetCurrent)
#else
void hsa_signal_store_screlease(uint64_t signal, int64_t value) { __asm__ volatile("" ::"r"(signal), "r"(value)); }
int hsa_init(void) { return 0; }
#endif
