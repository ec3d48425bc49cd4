// Stand-ins for the libraries through which programs annotate profiles. One is built for each
// library, with its name, its functions, and a version number that does not exist. As in the real
// libraries, counters provide the results. The stand-ins never read the strings.
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#ifdef ROCTX
static _Thread_local int level;
static atomic_ullong last_range;

void roctxMarkA(const char *message) { (void)message; }
int roctxRangePushA(const char *message) { (void)message; return level++; }
int roctxRangePop(void) { return level > 0 ? --level : -1; }
uint64_t roctxRangeStartA(const char *message) { (void)message; return ++last_range; }
void roctxRangeStop(uint64_t id) { (void)id; }
int roctxProfilerPause(uint64_t tid) { (void)tid; return 0; }
int roctxProfilerResume(uint64_t tid) { (void)tid; return 0; }
int roctxNameOsThread(const char *name) { (void)name; return 0; }
#endif

#if defined ROCTRACER || defined SDK
static _Thread_local uint64_t ids[16];
static _Thread_local unsigned count;

static int push(uint64_t id) {
    if (count < 16) ids[count++] = id;
    return 0;
}
static int pop(uint64_t *last) {
    if (count == 0) return -2;
    count--;
    if (last) *last = ids[count];
    return 0;
}
#endif

#ifdef ROCTRACER
int roctracer_activity_push_external_correlation_id(uint64_t id) { return push(id); }
int roctracer_activity_pop_external_correlation_id(uint64_t *last) { return pop(last); }
void roctracer_start(void) {}
void roctracer_stop(void) {}
#endif

#ifdef SDK
int rocprofiler_push_external_correlation_id(uint64_t context, uint64_t tid, uint64_t id) {
    (void)context, (void)tid;
    return push(id);
}
int rocprofiler_pop_external_correlation_id(uint64_t context, uint64_t tid, uint64_t *last) {
    (void)context, (void)tid;
    return pop(last);
}
#endif

#ifdef USER_API
int rocprofsys_user_push_region(const char *name) { (void)name; return 0; }
int rocprofsys_user_pop_region(const char *name) { (void)name; return 0; }
int rocprofsys_user_push_annotated_region(const char *name, void *annotations, size_t number) {
    (void)name, (void)annotations, (void)number;
    return 0;
}
int rocprofsys_user_pop_annotated_region(const char *name, void *annotations, size_t number) {
    (void)name, (void)annotations, (void)number;
    return 0;
}
int rocprofsys_user_start_trace(void) { return 0; }
int rocprofsys_user_stop_trace(void) { return 0; }
int rocprofsys_user_start_thread_trace(void) { return 0; }
int rocprofsys_user_stop_thread_trace(void) { return 0; }
#endif

#ifdef RCCL
int ncclAllReduce(const void *in, void *out, size_t elements, int type, int op, void *communicator, void *stream) {
    (void)in, (void)out, (void)elements, (void)type, (void)op, (void)communicator, (void)stream;
    return 0;
}
int ncclCommCount(const void *communicator, int *ranks) {
    (void)communicator;
    *ranks = 8;
    return 0;
}
// No real function does this: the memory for the result is unmapped when the function returns.
int ncclCommUserRank(const void *communicator, int *rank) {
    (void)communicator;
    return munmap((void *)((uintptr_t)rank & ~(uintptr_t)4095), 4096);
}
#endif
