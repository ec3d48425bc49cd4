#define _GNU_SOURCE
#include "call_log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct call_log_record) == 360, "tests/e2e/src/calllog.rs knows this size");
_Static_assert(sizeof(struct call_log_header) <= sizeof(struct call_log_record), "the header fills one record");

struct chunk {
    struct call_log_record *records;  // the first one is the header
    uint64_t used;
};

static _Thread_local struct chunk chunk;

uint64_t call_log_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    _exit(90);
}

// Without this, the child's only thread would go on writing into its parent's file.
static void forget_in_child(void) {
    if (chunk.records) munmap(chunk.records, CALL_LOG_CHUNK);
    chunk = (struct chunk){0};
}

// Time of the first log entry of this program image.
static uint64_t image;

static void start(void) {
    image = call_log_now();
    pthread_atfork(NULL, NULL, forget_in_child);
}

static void open_chunk(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);

    const char *directory = getenv("WORKLOAD_LOG");
    if (!directory) {
        fprintf(stderr, "WORKLOAD_LOG must name a directory for the call logs\n");
        _exit(90);
    }
    if (chunk.records) munmap(chunk.records, CALL_LOG_CHUNK);

    struct call_log_header header = {
        .magic = {'G', 'P', 'T', 'C', 'A', 'L', 'L', 'S'},
        .version = CALL_LOG_VERSION,
        .record_size = sizeof(struct call_log_record),
        .pid = (uint32_t)getpid(),
        .tid = (uint32_t)gettid(),
        .opened = call_log_now(),
        .image = image,
    };
    char path[4096];
    snprintf(path, sizeof path, "%s/%u-%u-%llu.calls", directory, header.pid, header.tid,
             (unsigned long long)header.opened);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) die(path);
    if (ftruncate(file, CALL_LOG_CHUNK) != 0) die(path);
    void *memory = mmap(NULL, CALL_LOG_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) die(path);
    close(file);
    chunk.records = memory;
    chunk.used = 1;
    memcpy(chunk.records, &header, sizeof header);
}

struct call_log_record *call_log_next(const char *name) {
    if (!chunk.records || (chunk.used + 1) * sizeof(struct call_log_record) > CALL_LOG_CHUNK) open_chunk();
    struct call_log_record *record = &chunk.records[chunk.used++];
    strncpy(record->name, name, CALL_LOG_NAME - 1);
    return record;
}
