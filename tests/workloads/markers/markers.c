// A program with markers, ranges, external correlation ids and collectives. It logs each in a line
// of WORKLOAD_LOG/markers.txt: `what tid begin end text`, with times in ns of CLOCK_BOOTTIME, read
// before and after.
#define _GNU_SOURCE
#include <hip/hip_runtime_api.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../call_log.h"
#include "decoders.h"

void roctxMarkA(const char *);
int roctxRangePushA(const char *);
int roctxRangePop(void);
uint64_t roctxRangeStartA(const char *);
void roctxRangeStop(uint64_t);
int roctxProfilerPause(uint64_t);
int roctxProfilerResume(uint64_t);
int roctracer_activity_push_external_correlation_id(uint64_t);
int roctracer_activity_pop_external_correlation_id(uint64_t *);
int rocprofsys_user_push_region(const char *);
int rocprofsys_user_pop_region(const char *);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclCommCount(const void *, int *);

enum { THREADS = 4, RANGES = 50 };

static FILE *out;

static void told(const char *what, uint64_t begin, const char *text) {
    fprintf(out, "%s %ld %llu %llu %s\n", what, syscall(SYS_gettid), (unsigned long long)begin,
            (unsigned long long)call_log_now(), text);
}

static void mark(const char *text) {
    uint64_t begin = call_log_now();
    roctxMarkA(text);
    told("mark", begin, text);
}

// Makes a HIP call, and logs the external correlation id under which it is made.
static void call(const char *id) {
    uint64_t begin = call_log_now();
    int devices = 0;
    (void)hipGetDeviceCount(&devices);
    told("call", begin, id);
}

static void *ranges(void *number) {
    char outer[64], inner[64];
    for (int index = 0; index < RANGES; index++) {
        snprintf(outer, sizeof outer, "thread %ld outer %d", (long)number, index % 5);
        snprintf(inner, sizeof inner, "thread %ld inner %d", (long)number, index);
        uint64_t begin = call_log_now();
        roctxRangePushA(outer);
        uint64_t inside = call_log_now();
        roctxRangePushA(inner);
        // The range keeps the name that was given when it began.
        memset(inner + 1, '#', 3);
        call("-");
        memcpy(inner, "thre", 4);
        roctxRangePop();
        told("range", inside, inner);
        roctxRangePop();
        told("range", begin, outer);
    }
    return NULL;
}

static void *unbalanced(void *unused) {
    (void)unused;
    roctxRangePop();
    told("unmatched", 0, "-");
    uint64_t begin = call_log_now();
    roctxRangePushA("never ended");
    told("endless", begin, "never ended");
    return NULL;
}

static uint64_t crossing;

static void *stop(void *unused) {
    roctxRangeStop(crossing);
    return unused;
}

static void thread(void *(*body)(void *)) {
    pthread_t other;
    if (pthread_create(&other, NULL, body, NULL) != 0) exit(92);
    pthread_join(other, NULL);
}

static void strings(void) {
    static char text[6000];
    for (size_t index = 0; index < sizeof text - 1; index++) text[index] = 'a' + index % 26;
    const size_t lengths[] = {0, 1, 38, 39, 40, 41, 998, 999, 1000, 5000};
    for (size_t index = 0; index < sizeof lengths / sizeof *lengths; index++) {
        char kept = text[lengths[index]];
        text[lengths[index]] = 0;
        mark(text);
        text[lengths[index]] = kept;
    }
    mark("not UTF-8: \xff\xfe");
    mark("\xc3\xa9t\xc3\xa9, \"quoted\", and, commas");
    roctxMarkA(NULL);
    told("nothing", 0, "-");
    roctxMarkA((const char *)8);
    told("nothing", 0, "-");
    // An unterminated string at the end of mapped memory.
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || munmap(pages + 4096, 4096) != 0) exit(93);
    memset(pages, 'x', 4096);
    roctxMarkA(pages + 4096 - 20);
    told("nothing", 0, "-");
}

static void identities(void) {
    uint64_t last = 0;
    call("-");
    roctracer_activity_push_external_correlation_id(77);
    call("77");
    roctracer_activity_push_external_correlation_id(0x123456789abcdefULL);
    call("81985529216486895");
    roctracer_activity_pop_external_correlation_id(&last);
    call("77");
    roctracer_activity_pop_external_correlation_id(&last);
    call("-");
    // One pop too many.
    roctracer_activity_pop_external_correlation_id(&last);
}

static void decode(void) {
    struct capabilities capabilities = {.codec = CODEC_HEVC, .chroma = CHROMA_420};
    struct packet packet = {.flags = END_OF_STREAM | TIMESTAMP, .time = 40};
    struct decoding decoding = {.format = OUTPUT_RGB, .left = -1};
    void *stream = NULL;
    rocDecGetDecoderCaps(NULL);
    rocDecGetDecoderCaps(&capabilities);
    rocDecParseVideoData((void *)0x1234, &packet);
    rocDecDecodeFrame((void *)0x1234, (void *)0x5678);
    rocJpegStreamCreate(&stream);
    rocJpegDecode(NULL, stream, &decoding, NULL);
    rocJpegStreamDestroy(stream);
}

int main(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/markers.txt", getenv("WORKLOAD_LOG"));
    out = fopen(path, "w");
    if (!out) return 90;
    mark("start");
    pthread_t others[THREADS];
    for (long index = 0; index < THREADS; index++) {
        if (pthread_create(&others[index], NULL, ranges, (void *)index) != 0) return 92;
    }
    for (int index = 0; index < THREADS; index++) pthread_join(others[index], NULL);
    uint64_t begin = call_log_now();
    crossing = roctxRangeStartA("crossing");
    uint64_t second = call_log_now();
    uint64_t overlapping = roctxRangeStartA("overlapping");
    thread(stop);
    told("range", begin, "crossing");
    roctxRangeStop(overlapping);
    told("range", second, "overlapping");
    thread(unbalanced);
    strings();
    identities();
    begin = call_log_now();
    rocprofsys_user_push_region("region of the user API");
    rocprofsys_user_pop_region("region of the user API");
    told("range", begin, "region of the user API");
    ncclAllReduce(NULL, NULL, 1024, 7, 0, (void *)0x1000, NULL);
    int ranks = 0;
    ncclCommCount((void *)0x1000, &ranks);
    decode();
    roctxProfilerResume(0);
    mark("selected");
    call("-");
    roctxProfilerPause(0);
    mark("after the pause");
    fclose(out);
    return 0;
}
