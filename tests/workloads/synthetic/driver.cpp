// Calls the synthetic library in ways that are hard to trace, and logs each call.
//
//   synthetic shapes N        N rounds of functions whose first instructions differ
//   synthetic recurse D N     N times D nested calls
//   synthetic longjmp N       N times: three nested calls, left by longjmp, then a plain call
//   synthetic thread-exit     threads that end in two nested calls, by pthread_exit and cancellation
//   synthetic exec-inside     executes `synthetic shapes 1` inside a call
//   synthetic block T         prints `ready` and waits for a line; then T threads make a short call and
//                             block inside another until standard input ends; prints `inside` when
//                             all of them block
//   synthetic flood T N       N calls on each of T threads, without pause
//   synthetic meet T          T threads, each of which waits inside a call until all are in one
//   synthetic timing N        for each line of input, prints the ns per call over N calls (best of
// 15)
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../call_log.hpp"
#include "sites.h"

// One call for the program, two for a tracer: hipSyntheticTail jumps to hipSyntheticTarget.
static void tail(uint64_t a) {
    call_log_record *records[] = {call_log_next("hipSyntheticTail"), call_log_next("hipSyntheticTarget")};
    for (call_log_record *record : records) {
        workload::Placement placement(record);
        placement.add(a);
        placement.add(uint64_t{5});
        record->words_known = 1;
    }
    uint64_t begin = call_log_now();
    for (call_log_record *record : records) record->begin = begin;
    uint64_t result = hipSyntheticTail(a, 5);
    uint64_t end = call_log_now();
    for (call_log_record *record : records) {
        record->result = result;
        record->result_mask = ~uint64_t{0};
        record->end = end;
    }
}

static void shapes(unsigned count) {
    for (uint64_t i = 0; i < count; i++) {
        LOGGED(hipSyntheticPush, i, 1);
        LOGGED(hipSyntheticEndbr, i, 2);
        LOGGED(hipSyntheticStepped, i, 3);
        LOGGED(hipSyntheticAlias, i, 4);
        LOGGED(hipSyntheticMany, i, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
        tail(i);
    }
}

static uint64_t recurse(void *depth) {
    uintptr_t left = reinterpret_cast<uintptr_t>(depth);
    if (left == 0) return 0;
    return LOGGED(hipSyntheticCall, recurse, reinterpret_cast<void *>(left - 1));
}

static jmp_buf escape;

static uint64_t jump(void *depth) {
    uintptr_t left = reinterpret_cast<uintptr_t>(depth);
    if (left == 0) longjmp(escape, 1);
    return LOGGED(hipSyntheticCall, jump, reinterpret_cast<void *>(left - 1));
}

static void jumps(unsigned count) {
    // Static, because longjmp need not preserve it otherwise.
    static unsigned i;
    for (i = 0; i < count; i++) {
        if (setjmp(escape) == 0) jump(reinterpret_cast<void *>(3));
        LOGGED(hipSyntheticPush, i, 1);
    }
}

static uint64_t leave_thread(void *depth) {
    uintptr_t left = reinterpret_cast<uintptr_t>(depth);
    if (left == 0) pthread_exit(nullptr);
    return LOGGED(hipSyntheticCall, leave_thread, reinterpret_cast<void *>(left - 1));
}

static sem_t inside;

static uint64_t wait_for_cancellation(void *depth) {
    uintptr_t left = reinterpret_cast<uintptr_t>(depth);
    if (left == 0) {
        sem_post(&inside);
        for (;;) pause();
    }
    return LOGGED(hipSyntheticCall, wait_for_cancellation, reinterpret_cast<void *>(left - 1));
}

static void *exiting_thread(void *) {
    leave_thread(reinterpret_cast<void *>(2));
    return nullptr;
}

static void *cancelled_thread(void *) {
    wait_for_cancellation(reinterpret_cast<void *>(2));
    return nullptr;
}

static void thread_exits() {
    pthread_t thread;
    pthread_create(&thread, nullptr, exiting_thread, nullptr);
    pthread_join(thread, nullptr);
    sem_init(&inside, 0, 0);
    pthread_create(&thread, nullptr, cancelled_thread, nullptr);
    sem_wait(&inside);
    pthread_cancel(thread);
    pthread_join(thread, nullptr);
    LOGGED(hipSyntheticPush, 1, 1);
}

static uint64_t execute(void *) {
    execl("/proc/self/exe", "synthetic", "shapes", "1", static_cast<char *>(nullptr));
    return 92;
}

static uint64_t post_and_wait(void *barrier) {
    sem_post(&inside);
    pthread_barrier_wait(static_cast<pthread_barrier_t *>(barrier));
    return 0;
}

static void *blocked_thread(void *barrier) {
    LOGGED(hipSyntheticPush, 1, 1);
    LOGGED(hipSyntheticCall, post_and_wait, barrier);
    return nullptr;
}

static uint64_t meet(void *barrier) {
    pthread_barrier_wait(static_cast<pthread_barrier_t *>(barrier));
    return 0;
}

static void *meeting_thread(void *barrier) {
    LOGGED(hipSyntheticCall, meet, barrier);
    // All threads stay until all calls have returned: a thread that ends makes room for another.
    pthread_barrier_wait(static_cast<pthread_barrier_t *>(barrier));
    return nullptr;
}

static unsigned flood_calls;

static void *flooding_thread(void *) {
    for (uint64_t i = 0; i < flood_calls; i++) LOGGED(hipSyntheticPush, i, 1);
    return nullptr;
}

enum { MOST_THREADS = 512 };
static pthread_t threads[MOST_THREADS];
static unsigned thread_count;

static void start_threads(unsigned count, void *(*function)(void *), void *argument) {
    for (thread_count = 0; thread_count < count && thread_count < MOST_THREADS; thread_count++) {
        if (pthread_create(&threads[thread_count], nullptr, function, argument) != 0) exit(92);
    }
}

static void join_threads() {
    for (unsigned index = 0; index < thread_count; index++) pthread_join(threads[index], nullptr);
}

static void block(unsigned count) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, count + 1);
    sem_init(&inside, 0, 0);
    puts("ready");
    fflush(stdout);
    char line[64];
    if (!fgets(line, sizeof line, stdin)) return;
    start_threads(count, blocked_thread, &barrier);
    for (unsigned index = 0; index < count; index++) sem_wait(&inside);
    puts("inside");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
    }
    pthread_barrier_wait(&barrier);
    join_threads();
}

static void timing(unsigned count) {
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        uint64_t best = ~uint64_t{0};
        for (int batch = 0; batch < 15; batch++) {
            uint64_t begin = call_log_now();
            for (uint64_t i = 0; i < count; i++) hipSyntheticPush(i, 1);
            uint64_t duration = call_log_now() - begin;
            if (duration < best) best = duration;
        }
        printf("%.3f\n", static_cast<double>(best) / count);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    unsigned first = argc > 2 ? static_cast<unsigned>(strtoul(argv[2], nullptr, 10)) : 0;
    unsigned second = argc > 3 ? static_cast<unsigned>(strtoul(argv[3], nullptr, 10)) : 0;
    if (strcmp(mode, "shapes") == 0) {
        shapes(first);
    } else if (strcmp(mode, "recurse") == 0) {
        for (unsigned i = 0; i < second; i++) recurse(reinterpret_cast<void *>(uintptr_t{first}));
    } else if (strcmp(mode, "longjmp") == 0) {
        jumps(first);
    } else if (strcmp(mode, "thread-exit") == 0) {
        thread_exits();
    } else if (strcmp(mode, "exec-inside") == 0) {
        LOGGED(hipSyntheticCall, execute, nullptr);
    } else if (strcmp(mode, "block") == 0) {
        block(first);
    } else if (strcmp(mode, "flood") == 0) {
        flood_calls = second;
        start_threads(first, flooding_thread, nullptr);
        join_threads();
    } else if (strcmp(mode, "meet") == 0) {
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, nullptr, first);
        start_threads(first, meeting_thread, &barrier);
        join_threads();
    } else if (strcmp(mode, "timing") == 0) {
        timing(first);
    } else {
        fprintf(stderr, "usage: synthetic MODE [N [N]]; see driver.cpp\n");
        return 2;
    }
    return 0;
}
