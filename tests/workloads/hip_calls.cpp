// A program that calls HIP and logs each call (see call_log.h).
//
// Built twice: as `hip_calls` by hipcc, linked with libamdhip64, with kernels; and with LATE
// defined, as
// `hip_late` by g++, which has no dependency on HIP and loads the library while running.
//
//   hip_calls single N          N rounds of calls on the main thread
//   hip_calls threads T N       N rounds on each of T concurrent threads, started one by one
//   hip_calls fork G N          N rounds, then a child that does the same, down to G generations
//   hip_calls exec G N          N rounds, then the program executes itself, G times
//   hip_calls loop RATE         short rounds, RATE per second (0: without pause), until
//                               standard input ends or SIGTERM; prints `ready` after the first
//   hip_calls getters           2,000 calls of hipGetDevice, not logged, for each launch; after a
//                               line of input one, 100 times a second, until standard input ends;
//                               prints `ready` after the first launch
//   hip_calls wait …            prints `ready` and waits for a line; then as above
//   hip_late  dlopen N          waits for a line of input between its steps: start, dlopen, calls
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "call_log.hpp"

#ifdef LATE
#include <hip/hip_ext.h>
#include <hip/hip_runtime_api.h>

static void *late_symbol(const char *name) {
    static void *library;
    if (!library) library = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, name) : nullptr;
    if (!symbol) {
        fprintf(stderr, "%s\n", dlerror());
        exit(91);
    }
    return symbol;
}

#define HIP_SYMBOL(name, type, symbol)                                                       \
    [](auto... arguments) {                                                                  \
        static auto *const function = reinterpret_cast<std::add_pointer_t<type>>(late_symbol(symbol));        \
        return ::workload::logged(#name, function, arguments...);                            \
    }
#define HIP(name) HIP_SYMBOL(name, decltype(::name), #name)
#define HIP_AS(name, type) HIP_SYMBOL(name, type, #name)
#define HIP_MANGLED(name)                \
    HIP_SYMBOL(name, decltype(::name), \
               "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j")
#else
#include <hip/hip_runtime.h>

#define HIP_AS(name, type)                                                                   \
    [](auto... arguments) { return ::workload::logged(#name, static_cast<std::add_pointer_t<type>>(&::name), arguments...); }
#define HIP(name) HIP_AS(name, decltype(::name))
#define HIP_MANGLED(name) HIP(name)
#endif

#include "hip_round.hpp"

using workload::Round;

static volatile sig_atomic_t terminated;

static void on_sigterm(int) { terminated = 1; }

#ifndef LATE
__global__ void touch(int *memory, int value) { memory[threadIdx.x] = value; }

// A launch in ordinary source code. The compiler turns it into three calls, and the program can
// only time all of them together. The last two happen only if the first succeeds, which it does not
// without a GPU; `configured` says whether it succeeded just before.
static void launch(unsigned number, bool configured) {
    const char *const names[] = {"__hipPushCallConfiguration", "__hipPopCallConfiguration", "hipLaunchKernel"};
    const int calls = configured ? 3 : 1;
    call_log_record *records[3];
    for (int index = 0; index < calls; index++) records[index] = call_log_next(names[index]);
    uint64_t begin = call_log_now();
    for (int index = 0; index < calls; index++) records[index]->begin = begin;
    touch<<<dim3(number + 1), dim3(64), 128, nullptr>>>(nullptr, 1);
    uint64_t end = call_log_now();
    for (int index = 0; index < calls; index++) records[index]->end = end;
}
#else
static void launch(unsigned, bool) {}
#endif

static void rounds(unsigned count) {
    Round round{0};
    for (round.number = 0; round.number < count; round.number++) {
        bool configured = workload::long_round(round);
        launch(round.number, configured);
    }
}

static void *thread_main(void *count) {
    rounds(*static_cast<unsigned *>(count));
    return nullptr;
}

static int threads(unsigned how_many, unsigned count) {
    pthread_t handles[256];
    if (how_many > 256) how_many = 256;
    for (unsigned index = 0; index < how_many; index++) {
        if (pthread_create(&handles[index], nullptr, thread_main, &count) != 0) return 92;
    }
    for (unsigned index = 0; index < how_many; index++) pthread_join(handles[index], nullptr);
    return 0;
}

static int generations(unsigned left, unsigned count) {
    rounds(count);
    if (left == 0) return 0;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) return 92;
    if (child == 0) exit(generations(left - 1, count));
    rounds(count);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 93;
}

static int executions(unsigned left, unsigned count, char *program) {
    rounds(count);
    if (left == 0) return 0;
    char remaining[16], rounds_text[16];
    snprintf(remaining, sizeof remaining, "%u", left - 1);
    snprintf(rounds_text, sizeof rounds_text, "%u", count);
    char *const arguments[] = {program, const_cast<char *>("exec"), remaining, rounds_text, nullptr};
    execv("/proc/self/exe", arguments);
    return 92;
}

// Waits for input for up to `milliseconds`, or forever if that is -1. Returns whether the input has
// ended.
static bool input_ended(int milliseconds) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    char byte;
    return poll(&input, 1, milliseconds) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static int loop(unsigned rate) {
    struct sigaction action = {};
    action.sa_handler = on_sigterm;
    sigaction(SIGTERM, &action, nullptr);
    Round round{0};
    for (; !terminated && !input_ended(rate == 0 ? 0 : 1000 / rate); round.number++) {
        workload::short_round(round);
        if (round.number == 0) {
            puts("ready");
            fflush(stdout);
        }
    }
    printf("%u rounds\n", round.number);
    return 0;
}

#ifndef LATE
static int getters() {
    Round round{0};
    bool is_calm = false;
    for (;; round.number++) {
        int device;
        for (int left = is_calm ? 1 : 2000; left > 0; left--) (void)hipGetDevice(&device);
        HIP(hipModuleLaunchKernel)
        (round.handle<hipFunction_t>(1), round.number, 2, 3, 4, 5, 6, 7, nullptr, nullptr, nullptr);
        if (round.number == 0) {
            puts("ready");
            fflush(stdout);
        }
        pollfd input = {STDIN_FILENO, POLLIN, 0};
        if (poll(&input, 1, is_calm ? 10 : 0) <= 0) continue;
        char byte;
        if (read(STDIN_FILENO, &byte, 1) <= 0) return 0;
        is_calm = true;
    }
}
#endif

static void wait_for_line(const char *step) {
    puts(step);
    fflush(stdout);
    char line[64];
    if (!fgets(line, sizeof line, stdin)) exit(94);
}

#ifdef LATE
static int late(unsigned count) {
    wait_for_line("ready");
    late_symbol("hipInit");
    wait_for_line("loaded");
    rounds(count);
    return 0;
}
#endif

static int usage(const char *program) {
    fprintf(stderr, "usage: %s single N | threads T N | fork G N | exec G N | loop RATE | getters | dlopen N\n", program);
    return 2;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        wait_for_line("ready");
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    const char *mode = argc > 1 ? argv[1] : "";
    unsigned first = argc > 2 ? static_cast<unsigned>(strtoul(argv[2], nullptr, 10)) : 0;
    unsigned second = argc > 3 ? static_cast<unsigned>(strtoul(argv[3], nullptr, 10)) : 0;
    if (strcmp(mode, "single") == 0) {
        rounds(first);
        // A status that identifies this exit.
        return argc > 3 ? static_cast<int>(second) : 0;
    }
    if (strcmp(mode, "threads") == 0) return threads(first, second);
    if (strcmp(mode, "fork") == 0) return generations(first, second);
    if (strcmp(mode, "exec") == 0) return executions(first, second, argv[0]);
    if (strcmp(mode, "loop") == 0) return loop(first);
#ifndef LATE
    if (strcmp(mode, "getters") == 0) return getters();
#endif
#ifdef LATE
    if (strcmp(mode, "dlopen") == 0) return late(first);
#endif
    return usage(argv[0]);
}
