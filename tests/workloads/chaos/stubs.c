// Stand-ins for ROCm's libraries that ignore their arguments, so that a program may pass them
// anything; only a tracer can fail on it. With HIP defined, this is a libamdhip64, otherwise a
// libhsa-runtime64.
#include <stddef.h>
#include <stdint.h>

// Keeps the compiler from optimising unused values away.
#define USED(value) __asm__ volatile("" ::"r"(value))

#ifdef HIP
int hipMalloc(void **memory, size_t size) { USED(memory); USED(size); return 0; }
int hipFree(void *memory) { USED(memory); return 0; }
int hipModuleLoad(void **module, const char *name) { USED(module); USED(name); return 0; }
int hipGetDeviceProperties(void *properties, int device) { USED(properties); USED(device); return 0; }
int hipMemcpy(void *to, const void *from, size_t size, int kind) {
    USED(to); USED(from); USED(size); USED(kind);
    return 0;
}
#else
// `struct r_debug` and `struct link_map` of <link.h>, as HSA exports them for debuggers.
struct debug_entry {
    uint64_t delta;
    const char *name;
    void *dynamic;
    struct debug_entry *next, *previous;
};
struct {
    int version;
    struct debug_entry *map;
    void *notify;
    int state;
    uint64_t base;
} _amdgpu_r_debug = {.version = 10};

int hsa_init(void) { return 0; }
int hsa_shut_down(void) { return 0; }
int hsa_queue_destroy(void *queue) { USED(queue); return 0; }
int hsa_executable_freeze(uint64_t executable, const char *options) { USED(executable); USED(options); return 0; }
int hsa_signal_destroy(uint64_t signal) { USED(signal); return 0; }
void hsa_signal_store_screlease(uint64_t signal, int64_t value) { USED(signal); USED(value); }
void hsa_signal_silent_store_relaxed(uint64_t signal, int64_t value) { USED(signal); USED(value); }
int hsa_amd_memory_async_copy(void *to, uint64_t to_agent, const void *from, uint64_t from_agent, size_t size,
                              uint32_t signals, const uint64_t *waits, uint64_t completion) {
    USED(to); USED(to_agent); USED(from); USED(from_agent);
    USED(size); USED(signals); USED(waits); USED(completion);
    return 0;
}
#endif
