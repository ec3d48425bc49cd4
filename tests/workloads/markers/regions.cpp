// Regions around functions with known numbers of calls, based on rocprofiler-systems' user API
// example:
//
//   regions THREADS ITERATIONS N
//
// Each of THREADS threads, and then the main thread, calls run() in a region. run() calls fib(N)
// ITERATIONS times, half of them in regions of their own, besides marks and overlapping ranges. One
// object begins a region in its constructor and ends it in its destructor. The main thread names
// itself and gives a second thread's calls an id. Each thread turns recording on only for its last
// call of once().

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
void roctxMarkA(const char *);
int roctxRangePushA(const char *);
int roctxRangePop(void);
uint64_t roctxRangeStartA(const char *);
void roctxRangeStop(uint64_t);
int roctxNameOsThread(const char *);
int rocprofsys_user_push_region(const char *);
int rocprofsys_user_pop_region(const char *);
int rocprofsys_user_start_thread_trace(void);
int rocprofsys_user_stop_thread_trace(void);
int rocprofiler_push_external_correlation_id(uint64_t context, uint64_t tid, uint64_t id);
int rocprofiler_pop_external_correlation_id(uint64_t context, uint64_t tid, uint64_t *id);
}

// Compiled as written: otherwise compilers turn recursion into loops and inline calls.
#define PLAIN __attribute__((noinline, noclone, optimize("O0")))

static volatile long result;

PLAIN long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

PLAIN void once(void) { result = result + 1; }

PLAIN void run(long iterations, long n) {
    uint64_t overlapping = roctxRangeStartA("overlapping");
    for (long i = 0; i < iterations; i++) {
        if (i % 2 == 0) {
            result = fib(n);
            continue;
        }
        roctxRangePushA("odd");
        roctxMarkA("mark");
        result = fib(n);
        roctxRangePop();
    }
    roctxRangeStop(overlapping);
}

PLAIN void region(long iterations, long n) {
    std::string name = "run(" + std::to_string(n) + ") x " + std::to_string(iterations);
    rocprofsys_user_push_region(name.c_str());
    run(iterations, n);
    rocprofsys_user_pop_region(name.c_str());
    once();
    rocprofsys_user_start_thread_trace();
    once();
    rocprofsys_user_stop_thread_trace();
}

struct Scope {
    PLAIN Scope() { roctxRangePushA("scope"); }
    PLAIN ~Scope() { roctxRangePop(); }
};

PLAIN void scoped(void) {
    Scope scope;
    once();
    once();
}

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: regions THREADS ITERATIONS N\n");
        return 2;
    }
    long threads = std::atol(argv[1]), iterations = std::atol(argv[2]), n = std::atol(argv[3]);
    // On the stack: the page of string literals has not been touched yet, and the stand-in library
    // does not read it either.
    char conductor[] = "conductor";
    roctxNameOsThread(conductor);
    std::vector<std::thread> others;
    for (long i = 0; i < threads; i++) others.emplace_back(region, iterations, n);
    for (std::thread &other : others) other.join();
    region(iterations, n);
    scoped();

    // Gives another thread an id, and tells that thread when it has it.
    int go[2], tell[2];
    if (pipe(go) != 0 || pipe(tell) != 0) return 1;
    std::thread other([&] {
        pid_t tid = gettid();
        write(tell[1], &tid, sizeof tid);
        char byte;
        for (int i = 0; i < 2; i++) {
            read(go[0], &byte, 1);
            once();
            write(tell[1], &tid, sizeof tid);
        }
    });
    pid_t tid;
    uint64_t id;
    read(tell[0], &tid, sizeof tid);
    rocprofiler_push_external_correlation_id(1, tid, 4712);
    once();
    write(go[1], "", 1);
    read(tell[0], &tid, sizeof tid);
    rocprofiler_pop_external_correlation_id(1, tid, &id);
    write(go[1], "", 1);
    read(tell[0], &tid, sizeof tid);
    other.join();
    std::printf("other %d\n", tid);
    return 0;
}
