// Actions of `chaos` that target the tracer: memory that blocks whoever reads it, invalid names,
// and invalid structures.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "chaos.h"

int hsa_queue_destroy(void *queue);
int hsa_executable_freeze(uint64_t executable, const char *options);
int hsa_signal_destroy(uint64_t signal);
void hsa_signal_store_screlease(uint64_t signal, int64_t value);
void hsa_signal_silent_store_relaxed(uint64_t signal, int64_t value);
int hsa_amd_memory_async_copy(void *to, uint64_t to_agent, const void *from, uint64_t from_agent, size_t size,
                              uint32_t signals, const uint64_t *waits, uint64_t completion);
void roctxMarkA(const char *message);
int roctxRangePushA(const char *message);
int roctxRangePop(void);
struct debug_entry {
    uint64_t delta;
    const char *name;
    void *dynamic;
    struct debug_entry *next, *previous;
};
extern struct {
    int version;
    struct debug_entry *map;
    void *notify;
    int state;
    uint64_t base;
} _amdgpu_r_debug;


// ---- Page faults that are never resolved ----

// Memory in which a page fault blocks until the descriptor is closed, that is, until the process
// ends.
static char *bottomless(void) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) give_up("userfaultfd");
    char *memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register all = {.range = {(uintptr_t)memory, 4 * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (memory == MAP_FAILED || ioctl(fd, UFFDIO_REGISTER, &all)) give_up("userfaultfd");
    return memory;
}

static uint64_t touch(void *memory) { return *(volatile char *)memory; }

static void *hang_in_a_call(void *memory) {
    CALL(hipSyntheticCall(touch, memory));
    return NULL;
}

// Passes strings and structures in such memory to functions that do not read them, then hangs
// within a call if asked to.
static void give_bottomless_memory(unsigned calls, char *memory) {
    // If a tracer read this memory in this thread's context, the thread would hang here.
    for (unsigned i = 0; i < calls; i++) {
        roctxMarkA(memory + i % 4 * PAGE);
        roctxRangePushA(memory + i % 4 * PAGE + 100);
        roctxRangePop();
    }
    hsa_signal_store_screlease((uintptr_t)memory, 1);
    hsa_signal_silent_store_relaxed((uintptr_t)memory + 64, 1);
}

void act_hang(uint64_t *random) {
    unsigned calls = 1 + below(random, 5), hung = below(random, 2), status = below(random, 90);
    pid_t child = new_child();
    if (child == 0) {
        // Ends the process, instead of letting it hang forever, if the memory is touched in its
        // context.
        alarm(20);
        char *memory = bottomless();
        give_bottomless_memory(calls, memory);
        if (hung) {
            pthread_t thread;
            uint64_t before = atomic_load(&shared->begun);
            if (pthread_create(&thread, NULL, hang_in_a_call, memory)) give_up("thread");
            while (atomic_load(&shared->begun) == before) sched_yield();
        }
        _exit(status);
    }
    say_end("hang", child);
}

pid_t start_hung(void) {
    int ready[2];
    char byte = 0;
    if (pipe2(ready, O_CLOEXEC)) give_up("pipe");
    pid_t child = new_child();
    if (child == 0) {
        char *memory = bottomless();
        give_bottomless_memory(2, memory);
        if (write(ready[1], &byte, 1) != 1) _exit(94);
        hang_in_a_call(memory);
        _exit(93);
    }
    close(ready[1]);
    // Must happen within 20 seconds: strings in unreadable memory must not block the program.
    struct pollfd end = {.fd = ready[0], .events = POLLIN};
    say("a process that hangs in a call: %s", poll(&end, 1, 20000) == 1 ? "begun" : "hung before it");
    close(ready[0]);
    return child;
}

// ---- Libraries ----

void act_load(uint64_t *random) {
    unsigned count = 1 + below(random, 12), late = below(random, 2), strange = below(random, 2);
    void *libraries[12];
    char path[600];
    for (unsigned i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/small%u.so", arguments[5], i);
        libraries[i] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        int (*number)(void) = libraries[i] ? (int (*)(void))dlsym(libraries[i], "number") : NULL;
        if (!number || number() != 7) say("cannot load %u: %s", i, dlerror());
    }
    some_calls(5);
    for (unsigned i = 0; i < count; i++) dlclose(libraries[i]);
    if (late) {
        snprintf(path, sizeof path, "%s/%s/libamdhip64.so.98", arguments[5], strange ? "str\033]0;ange\a" : "late");
        void *hip = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        int (*allocate)(void **, size_t) = hip ? (int (*)(void **, size_t))dlsym(hip, "hipMalloc") : NULL;
        int (*load)(void **, const char *) = hip ? (int (*)(void **, const char *))dlsym(hip, "hipModuleLoad") : NULL;
        if (!allocate || !load) {
            say("cannot load HIP");
            return;
        }
        void *nothing = NULL;
        int sum = CALL(allocate(&nothing, 100));
        sum += CALL(allocate((void **)(uintptr_t)0xffff800000000000, 100));
        sum += CALL(load(&nothing, "k\033]0;pwned\a\033[2J\nhipFree(ptr=0x0) = 0 hipSuccess"));
        sum += CALL(load((void **)8, (const char *)(uintptr_t)0x7ffffffffff0));
        say("a HIP that came late: %d", sum);
        dlclose(hip);
    }
    say("loaded %u libraries", count);
}

void act_names(uint64_t *random) {
    static const char *const names[] = {"\033[2J\033]0;x\a", "a\nb\nc", "=1+1,\"x\"", "../../../x", "<b>&", "\xff\xfe\x80"};
    const char *name = names[below(random, sizeof names / sizeof *names)];
    char old[17] = "";
    prctl(PR_GET_NAME, old);
    prctl(PR_SET_NAME, name);
    roctxMarkA(name);
    roctxRangePushA(name);
    some_calls(2);
    roctxRangePop();
    prctl(PR_SET_NAME, old);
    say("a strange name");
}

// ---- Forged HSA structures ----

// A queue and its doorbell signal with the layouts of amd_hsa_queue.h and amd_hsa_signal.h, but
// with nothing behind them.
void act_forge(uint64_t *random) {
    enum { SIZE = 4096, PACKET = 64 };
    char *ring = mmap(NULL, SIZE * PACKET, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) give_up("mmap");
    for (int i = 0; i < 50; i++) {
        uint64_t word = next(random);
        memcpy(ring + word % (SIZE * PACKET - 8) / 2 * 2, &word, sizeof word);
    }
    uint64_t *queue = aligned_alloc(PAGE, PAGE), *signal_ = aligned_alloc(PAGE, PAGE);
    memset(queue, 0, PAGE);
    memset(signal_, 0, PAGE);
    const uint64_t addresses[] = {(uintptr_t)ring, 0, 8, 0xffff888000000000, 0x7ffffffff000, (uintptr_t)ring + 1, ~0ull};
    const uint32_t sizes[] = {SIZE, 0, 3, 1, 1u << 31, ~0u};
    // Half of the queues are nearly right, so that a tracer takes them seriously.
    int right = below(random, 2);
    queue[1] = right ? addresses[0] : addresses[below(random, 7)];
    queue[2] = (uintptr_t)signal_;
    queue[3] = right ? sizes[0] : sizes[below(random, 6)];
    queue[4] = next(random);
    signal_[0] = (uint64_t)-1;  // AMD_SIGNAL_KIND_DOORBELL
    signal_[6] = below(random, 4) ? (uintptr_t)queue : addresses[below(random, 7)];
    const int64_t steps[] = {1, 3, SIZE, SIZE - 1, 1 << 30, -5, INT64_MAX};
    int64_t index = 0;
    unsigned doorbells = 1 + below(random, 12);
    for (unsigned i = 0; i < doorbells; i++) {
        index = (int64_t)((uint64_t)index + (uint64_t)steps[below(random, 7)]);
        queue[7] = below(random, 2) ? 0 : (uint64_t)index;
        hsa_signal_store_screlease((uintptr_t)signal_, index);
    }
    // Invalid handles.
    for (int i = 0; i < 7; i++) {
        hsa_signal_store_screlease(addresses[i], 5);
        hsa_signal_silent_store_relaxed(addresses[i], 1);
        hsa_signal_destroy(addresses[i]);
        hsa_queue_destroy((void *)(uintptr_t)addresses[i]);
        hsa_amd_memory_async_copy((void *)(uintptr_t)addresses[i], addresses[6 - i], ring, addresses[i], ~0ull, ~0u,
                                  (const uint64_t *)(uintptr_t)addresses[i], addresses[6 - i]);
    }
    // A circular list of code objects, a list that ends at an invalid address, and files that
    // nobody should open.
    static struct debug_entry loop[3];
    const char *const files[] = {"file:///dev/kmsg#offset=0&size=100", "file:///proc/self/mem#offset=4096&size=18446744073709551615",
                                 "memory://1#offset=0xffff888000000000&size=0xffffffff", "\033]0;x\a"};
    for (int i = 0; i < 3; i++) {
        loop[i] = (struct debug_entry){next(random), files[below(random, 4)], NULL, &loop[(i + 1) % 3], NULL};
    }
    if (below(random, 2)) loop[2].next = (struct debug_entry *)(uintptr_t)addresses[below(random, 7)];
    if (below(random, 4) == 0) loop[0].name = (const char *)(uintptr_t)addresses[below(random, 7)];
    _amdgpu_r_debug.map = &loop[0];
    hsa_executable_freeze(addresses[0], NULL);
    _amdgpu_r_debug.map = NULL;
    munmap(ring, SIZE * PACKET);
    free(queue);
    free(signal_);
    say("forged a queue with %u doorbells", doorbells);
}
