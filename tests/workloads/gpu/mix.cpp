// Kernels of many classes: a single kernel whose grid identifies the class and whose argument gives
// its duration in ticks of 10 ns. By default the GPU has about 20 ms of work queued.
// `mix KEY=VALUE...`:
//   seconds=S     launch S seconds of GPU time, or with `every` run for S seconds (default 1)
//   classes=N     durations from 3 us to 3 ms, evenly spaced on a logarithmic scale; default 20
//   from=US to=US another range of durations
//   period=N      repeat a sequence of N kernels, wait for it each time, then idle for `pause` us;
//                 without it, classes are drawn at random
//   graph=1       launch the sequence as a graph
//   streams=N     use N streams in turn; with `ring=K` switch every K kernels, waiting for those K
//   every=US      launch one kernel every US us, as long as the GPU keeps up
//   bimodal=1     in every fourth class, three of ten kernels take five times as long as the others
//   drift=P       durations grow by P % over the run
#include <cmath>
#include <cstring>
#include <ctime>
#include <vector>

#include "said.hpp"

extern "C" __global__ void mixed(uint64_t) {}

static double setting(int argc, char **argv, const char *name, double otherwise) {
    const size_t length = std::strlen(name);
    for (int at = 1; at < argc; at++)
        if (std::strncmp(argv[at], name, length) == 0 && argv[at][length] == '=')
            return std::strtod(argv[at] + length + 1, nullptr);
    return otherwise;
}

// SplitMix64 with a fixed seed, so every run has the same kernels.
static double draw() {
    static uint64_t state = 14;
    uint64_t value = state += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return static_cast<double>((value ^ value >> 31) >> 11) / 9007199254740992.0;
}

// The current time in us.
static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

static void sleep_until(double time) {
    timespec until{static_cast<time_t>(time / 1e6), static_cast<long>(std::fmod(time, 1e6) * 1e3)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

int main(int argc, char **argv) {
    auto given = [&](const char *name, double otherwise) { return setting(argc, argv, name, otherwise); };
    const double limit = given("seconds", 1) * 1e6, from = given("from", 3), to = given("to", 3000);
    const double pause = given("pause", 2000), every = given("every", 0), drift = given("drift", 0) / 100;
    const unsigned classes = given("classes", 20), period = given("period", 0), streams = given("streams", 1);
    const unsigned ring = given("ring", 0);
    const bool bimodal = given("bimodal", 0) != 0, graph = given("graph", 0) != 0;
    constexpr double ahead = 20000, gap = 5;

    std::vector<hipStream_t> stream(streams);
    for (hipStream_t &one : stream)
        HIP(hipStreamCreateWithFlags(&one, hipStreamNonBlocking));
    hipEvent_t done;
    HIP(hipEventCreateWithFlags(&done, hipEventDisableTiming));
    std::vector<unsigned> sequence(period);
    for (unsigned &one : sequence)
        one = static_cast<unsigned>(draw() * classes);

    // GPU time launched so far, and when each stream will be done with it.
    double used = 0;
    std::vector<double> busy_until(streams);
    auto duration = [&](unsigned number) {
        double mean = from * std::pow(to / from, (number + 0.5) / classes) * (1 + drift * used / limit);
        if (bimodal && number % 4 == 1)
            mean *= draw() < 0.3 ? 2.5 : 0.5;
        // Run times of a kernel vary, with a standard deviation of 2 %.
        return mean * (1 + 0.07 * (draw() - 0.5));
    };
    // The kernel's argument is in ticks of 10 ns.
    auto launch = [&](unsigned number, double micros, hipStream_t where) {
        mixed<<<dim3(1 + number), dim3(64), 0, where>>>(static_cast<uint64_t>(micros * 100));
        HIP(hipGetLastError());
    };

    hipGraphExec_t ready{};
    double whole = 0;
    if (graph) {
        HIP(hipStreamBeginCapture(stream[0], hipStreamCaptureModeGlobal));
        for (unsigned number : sequence) {
            const double micros = duration(number);
            launch(number, micros, stream[0]);
            whole += micros;
        }
        hipGraph_t captured;
        HIP(hipStreamEndCapture(stream[0], &captured));
        HIP(hipGraphInstantiate(&ready, captured, nullptr, nullptr, 0));
        HIP(hipGraphDestroy(captured));
    }
    double next = now();
    for (unsigned count = 0; used < limit; count++) {
        if (graph) {
            for (unsigned number : sequence)
                said::kernel("mixed", 0, dim3(1 + number), dim3(64));
            HIP(hipGraphLaunch(ready, stream[0]));
            used += whole;
            HIP(hipStreamSynchronize(stream[0]));
            sleep_until(now() + pause * (0.5 + draw()));
            continue;
        }
        const unsigned number = period ? sequence[count % period] : static_cast<unsigned>(draw() * classes);
        const double micros = duration(number);
        const unsigned at = (ring ? count / ring : count) % streams;
        if (ring && count && count % ring == 0) {
            HIP(hipEventRecord(done, stream[(at + streams - 1) % streams]));
            HIP(hipStreamWaitEvent(stream[at], done, 0));
        }
        if (every > 0) {
            // Do not make up for time during which the process was stopped.
            next = std::max(next + every, now() - every);
            sleep_until(next);
            used += every;
        } else {
            used += micros;
        }
        said::kernel("mixed", 0, dim3(1 + number), dim3(64));
        launch(number, micros, stream[at]);
        double &until = busy_until[ring ? 0 : at];
        until = std::max(until, now()) + micros + gap;
        if (period && count % period == period - 1) {
            HIP(hipStreamSynchronize(stream[at]));
            sleep_until(now() + pause * (0.5 + draw()));
        } else if (every == 0 && until > now() + ahead) {
            sleep_until(until - ahead / 2);
        }
    }
    HIP(hipDeviceSynchronize());
    if (graph)
        HIP(hipGraphExecDestroy(ready));
    HIP(hipEventDestroy(done));
    for (hipStream_t one : stream)
        HIP(hipStreamDestroy(one));
}
