// Functions with known numbers of calls, modelled on rocprofiler-systems' user API example:
//
//   fib THREADS ITERATIONS N
//
// Each of THREADS threads, and then the main thread, calls fib(N) ITERATIONS times.
//
//   fib wait THREADS ITERATIONS N
//
// The same, after reading a line from standard input.
//
// Prints `calls LABEL DEPTH COUNT` for every function and depth, for the main thread and for one
// other thread. The depth is the number of enclosing calls to these functions.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shared.h"

#define NOINLINE __attribute__((noinline))

// Compiled as written: otherwise compilers turn recursion into loops and inline calls.
#define PLAIN __attribute__((noinline, noclone, optimize("O0")))

// Always inlined, so it has no code of its own.
static inline __attribute__((always_inline)) long add(long a, long b) { return a + b; }

PLAIN long fib(long n) { return n < 2 ? n : add(fib(n - 1), fib(n - 2)); }

static volatile long result;

namespace work {

// Leaves by a jump to another function (a tail call).
NOINLINE long tail(long n) {
    result = n;
    return shared_twice(n);
}

// Not exported; every third call leaves by an exception.
static NOINLINE long thrower(long n) {
    if (n % 3 == 0) {
        throw std::runtime_error("third");
    }
    return n;
}

// Lets the exception through.
static NOINLINE long between(long n) { return thrower(n) + 1; }

static NOINLINE long catcher(long n) {
    try {
        return between(n);
    } catch (const std::runtime_error &) {
        return -1;
    }
}

// Has several exits and a jump table.
NOINLINE long choose(long n) {
    switch (n % 8) {
    case 0: return n * 3;
    case 1: return n ^ 77;
    case 2: return catcher(n);
    case 3: return n - 9;
    case 4: return n << 3;
    case 5: return tail(n);
    case 6: return n / 7;
    default: return 11;
    }
}

// Recurses deeper than gputrace follows.
PLAIN long deep(long n) { return n == 0 ? 0 : deep(n - 1) + 1; }

template <typename T> struct Sum {
    T total{};
    NOINLINE void take(T value) { total += value; }
};

}  // namespace work

NOINLINE void run(long iterations, long n) {
    for (long i = 0; i < iterations; i++) {
        result = fib(n);
    }
}

static void expect(std::map<std::pair<std::string, int>, long> &calls, long n, int depth) {
    calls[{"fib(long)", depth}] += 1;
    if (n >= 2) {
        expect(calls, n - 1, depth + 1);
        expect(calls, n - 2, depth + 1);
    }
}

int main(int argc, char **argv) {
    bool wait = argc > 1 && std::strcmp(argv[1], "wait") == 0;
    if (argc != 4 + wait) {
        std::fprintf(stderr, "usage: fib [wait] THREADS ITERATIONS N\n");
        return 2;
    }
    long threads = std::atol(argv[1 + wait]);
    long iterations = std::atol(argv[2 + wait]);
    long n = std::atol(argv[3 + wait]);
    std::printf("ready\n");
    std::fflush(stdout);
    if (wait && std::getchar() == EOF) {
        return 1;
    }

    std::vector<std::thread> others;
    for (long i = 0; i < threads; i++) {
        others.emplace_back(run, iterations, n);
    }
    for (std::thread &other : others) {
        other.join();
    }
    run(iterations, n);
    work::Sum<double> sum;
    long total = 0;
    for (long i = 0; i < 240; i++) {
        total += work::choose(i);
        sum.take(static_cast<double>(total));
    }
    total += work::deep(40);

    std::map<std::pair<std::string, int>, long> calls;
    expect(calls, n, 1);
    for (const auto &[key, count] : calls) {
        std::printf("calls %s %d %ld\n", key.first.c_str(), key.second, count * iterations);
    }
    std::printf("total %ld %g\n", total, sum.total);
    std::fflush(stdout);
    if (wait) {
        // Runs until standard input ends.
        while (std::getchar() != EOF) {
        }
    }
    return 0;
}
