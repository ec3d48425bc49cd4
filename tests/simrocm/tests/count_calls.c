/* Preloaded into a program: counts the HSA functions that HIP calls, and writes the counts to
 * the file named by CALL_COUNTS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t word;
typedef word function(word, word, word, word, word, word, word, word);

/* Forwards up to eight argument words, whether they are passed in registers or on the stack. */
#define COUNTED(name)                                                                         \
    static uint64_t count_##name;                                                             \
    word name(word a, word b, word c, word d, word e, word f, word g, word h) {               \
        static function *next;                                                                \
        if (!next)                                                                            \
            next = (function *)dlsym(RTLD_NEXT, #name);                                       \
        __atomic_fetch_add(&count_##name, 1, __ATOMIC_RELAXED);                               \
        return next(a, b, c, d, e, f, g, h);                                                  \
    }
#define FUNCTIONS(each)                                                                       \
    each(hsa_queue_create) each(hsa_amd_queue_create) each(hsa_signal_create)                 \
    each(hsa_amd_signal_create) each(hsa_amd_signal_batch_create)                             \
    each(hsa_signal_silent_store_relaxed) each(hsa_signal_store_screlease)                    \
    each(hsa_queue_add_write_index_screlease) each(hsa_amd_memory_async_copy)                 \
    each(hsa_amd_memory_async_batch_copy)

FUNCTIONS(COUNTED)

__attribute__((destructor)) static void say(void) {
    const char *path = getenv("CALL_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
#define SAY(name) fprintf(file, "%s %llu\n", #name, (unsigned long long)count_##name);
    FUNCTIONS(SAY)
    fclose(file);
}
