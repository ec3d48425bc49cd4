// The workloads' own account of what they called: the ground truth that traces are compared with.
//
// One file per thread, mapped shared, one fixed-size record per call. Nothing has to be flushed: what was
// written is in the file however the thread or process ends, by exit, exec, a signal or SIGKILL.
// tests/e2e/src/calllog.rs reads these files; layout and VERSION must agree.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CALL_LOG_VERSION = 2,
    CALL_LOG_REGISTERS = 6,  // rdi, rsi, rdx, rcx, r8, r9
    CALL_LOG_STACK = 8,      // words above the return address
    CALL_LOG_WORDS = CALL_LOG_REGISTERS + CALL_LOG_STACK,
    CALL_LOG_NAME = 96,
    CALL_LOG_CHUNK = 16 << 20,  // bytes of a file; it is sparse, and full files are followed by another
};

// First record-sized block of a file.
struct call_log_header {
    char magic[8];  // "GPTCALLS"
    uint32_t version;
    uint32_t record_size;
    uint32_t pid;
    uint32_t tid;
    uint64_t opened;  // ns CLOCK_BOOTTIME: order of the files of one thread
    uint64_t image;   // the same in all files of a process until it executes another program
};

// One call. A name of zero length ends the file.
struct call_log_record {
    char name[CALL_LOG_NAME];
    uint64_t begin;        // ns CLOCK_BOOTTIME, read before the call
    uint64_t end;          // read after the call; 0: it never returned
    uint64_t result;       // return register
    uint64_t result_mask;  // bits of it that the ABI defines; 0 if there is no return value in rax
    uint32_t words_known;  // 0: the arguments are not known (a call that the compiler generated)
    uint32_t reserved;
    uint64_t word[CALL_LOG_WORDS];  // registers, then stack
    uint64_t mask[CALL_LOG_WORDS];  // bits of each word that belong to an argument
};

// ns, CLOCK_BOOTTIME.
uint64_t call_log_now(void);

// The next record of the calling thread, with its name set. Ends the program if the log directory
// (environment variable WORKLOAD_LOG) cannot be written.
struct call_log_record *call_log_next(const char *name);

#ifdef __cplusplus
}
#endif
