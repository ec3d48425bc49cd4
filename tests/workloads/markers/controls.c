#define _GNU_SOURCE
// Turns recording on and off in every way that programs can, and calls HIP in both states. It also
// gives calls external correlation ids through rocprofiler's functions, annotates regions, and
// passes invalid pointers.
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

// The declaration of rocprofiler-systems.
struct annotation {
    const char *name;
    uintptr_t type;
    void *value;
};

// Constants far from any memory that is touched: their pages are not resident when they are passed
// to a function. Like ROCTx without a tool, the stand-ins do not read them.
static const struct {
    char before[1 << 18];
    char annotated[16], strerror[16], value[16];
    uint64_t number;
    char after[1 << 18];
} far __attribute__((aligned(1 << 16))) = {
    .annotated = "annotated", .strerror = "strerror", .value = "a constant", .number = 4711};

// Annotates one region with a value of each type and with values that are missing. The value of the
// loop count is set only at its end.
static void annotate(void) {
    char many[] = "many", lost[] = "lost";
    char why[] = "no such file";
    size_t count = 7;
    int64_t big = -5000000000;
    uint64_t all = UINT64_MAX;
    double tolerance = 0.25;
    int32_t error = -2;
    uint32_t flags = 9;
    float ratio = 1.5f;
    int16_t less = -3;
    uint16_t port = 443;
    struct annotation annotations[] = {
        {"iteration", 2, NULL}, {far.strerror, 1, why},   {"big", 3, &big},       {"all", 4, &all},
        {"tolerance", 5, &tolerance}, {"data", 6, (void *)0x1000}, {"errno", 7, &error},
        {"flags", 8, &flags},   {"ratio", 9, &ratio},   {"less", 10, &less},    {"port", 11, &port},
        {"gone", 3, (void *)0x10}, {"gone_text", 1, (void *)0x10}, {"newer", 77, (void *)0x20},
        {"far", 1, (void *)far.value}, {"far_number", 4, (void *)&far.number},
    };
    rocprofsys_user_push_annotated_region(far.annotated, annotations, sizeof annotations / sizeof *annotations);
    annotations[0].value = &count;
    error = 0;
    rocprofsys_user_pop_annotated_region(far.annotated, annotations, 7);
    struct annotation more[17];
    for (int i = 0; i < 17; i++) more[i] = (struct annotation){i == 0 ? NULL : "count", 2, &count};
    rocprofsys_user_push_annotated_region(many, more, 17);
    rocprofsys_user_pop_annotated_region(many, NULL, 0);
    rocprofsys_user_push_annotated_region(lost, (void *)0x30, 1);
    rocprofsys_user_pop_annotated_region(lost, NULL, 0);
}

// Each state calls a different HIP function, so that a trace shows which calls were recorded.
static void off(void) {
    int value = 0;
    (void)hipRuntimeGetVersion(&value);
}

int main(void) {
    int value = 0;
    size_t size = 0;
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
    annotate();
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
