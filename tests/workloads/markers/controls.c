#define _GNU_SOURCE
// A program that turns recording on and off by each of the ways that programs have, calling HIP while it is on and while it
// is off, gives calls external correlation ids by rocprofiler's functions, and passes pointers that lead nowhere.
#include <hip/hip_runtime_api.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

int roctxProfilerPause(uint64_t);
int roctxProfilerResume(uint64_t);
void roctracer_start(void);
void roctracer_stop(void);
int rocprofsys_user_start_trace(void);
int rocprofsys_user_stop_trace(void);
int rocprofsys_user_push_annotated_region(const char *, void *, size_t);
int rocprofsys_user_pop_annotated_region(const char *, void *, size_t);
int rocprofiler_push_external_correlation_id(uint64_t context, uint64_t tid, uint64_t id);
int rocprofiler_pop_external_correlation_id(uint64_t context, uint64_t tid, uint64_t *id);
int ncclCommUserRank(const void *, int *);

// Each has a function of its own within, so that a trace shows which were recorded.
static void off(void) {
    int value = 0;
    (void)hipRuntimeGetVersion(&value);
}

int main(void) {
    int value = 0;
    size_t size = 0;
    // In memory that is there: the stand-ins, unlike the real libraries, do not look at a text.
    char text[] = "annotated";
    off();
    roctxProfilerResume(0);
    (void)hipDriverGetVersion(&value);
    roctxProfilerPause(0);
    off();
    roctracer_start();
    (void)hipGetDeviceCount(&value);
    roctracer_stop();
    off();
    (void)hipProfilerStart();
    (void)hipGetDevice(&value);
    (void)hipProfilerStop();
    off();
    rocprofsys_user_start_trace();
    (void)hipMemGetInfo(&size, &size);
    rocprofsys_user_push_annotated_region(text, NULL, 0);
    rocprofsys_user_pop_annotated_region(text, NULL, 0);
    rocprofsys_user_stop_trace();
    off();
    uint64_t last = 0;
    rocprofiler_push_external_correlation_id(1, 0, 4711);
    (void)hipDeviceSynchronize();
    rocprofiler_pop_external_correlation_id(1, 0, &last);
    (void)hipDeviceSynchronize();
    int *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 93;
    *page = 1;
    ncclCommUserRank((void *)0x1000, page);
    return last == 4711 ? 0 : 94;
}
