// An HSA program without HIP that runs barrier packets and copies, and logs the ticks stored in
// their signals.
#include "hsa.hpp"

// Logs the raw fields of a completed signal, and the times into which HSA converts them.
static void say(const char *what, hsa_signal_t signal, uint64_t start, uint64_t end, size_t bytes) {
    auto *raw = reinterpret_cast<const uint64_t *>(signal.handle);
    bool copy = bytes != 0;
    // ROCr's SharedSignal: an amd_signal_t, then sdma_start_ts at byte 64 and sdma_end_ts at byte
    // 96.
    uint64_t begin_ticks = copy ? raw[8] : raw[4], end_ticks = copy ? raw[12] : raw[5];
    std::fprintf(log_file(),
                 R"({"said":"%s","signal":%llu,"begin_ticks":%llu,"end_ticks":%llu,"begin_ns":%llu,"end_ns":%llu,"bytes":%zu})" "\n",
                 what, (unsigned long long)signal.handle, (unsigned long long)begin_ticks,
                 (unsigned long long)end_ticks, (unsigned long long)start, (unsigned long long)end, bytes);
}

int main() {
    Machine machine;
    HSA(hsa_amd_profiling_async_copy_enable(true));

    hsa_queue_t *queue;
    HSA(hsa_queue_create(machine.gpu, 64, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX, &queue));
    HSA(hsa_amd_profiling_set_profiler_enabled(queue, 1));
    hsa_signal_t signals[200];
    for (hsa_signal_t &signal : signals) {
        HSA(hsa_signal_create(1, 0, nullptr, &signal));
        uint64_t index = reserve(queue, 1);
        hsa_barrier_and_packet_t packet{};
        packet.completion_signal = signal;
        write(queue, index, packet,
              HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER);
        ring(queue, index);
    }
    for (hsa_signal_t signal : signals) {
        wait_for(signal);
        hsa_amd_profiling_dispatch_time_t time;
        HSA(hsa_amd_profiling_get_dispatch_time(machine.gpu, signal, &time));
        say("barrier", signal, time.start, time.end, 0);
    }

    void *host, *device;
    const size_t largest = 1 << 20;
    HSA(hsa_amd_memory_pool_allocate(machine.host, largest, 0, &host));
    HSA(hsa_amd_memory_pool_allocate(machine.vram, largest, 0, &device));
    HSA(hsa_amd_agents_allow_access(1, &machine.gpu, nullptr, host));
    for (size_t bytes = 4; bytes <= largest; bytes *= 4) {
        hsa_signal_t signal;
        HSA(hsa_signal_create(1, 0, nullptr, &signal));
        HSA(hsa_amd_memory_async_copy(device, machine.gpu, host, machine.cpu, bytes, 0, nullptr, signal));
        wait_for(signal);
        hsa_amd_profiling_async_copy_time_t time;
        HSA(hsa_amd_profiling_get_async_copy_time(signal, &time));
        say("copy", signal, time.start, time.end, bytes);
    }
    std::fclose(log_file());
    HSA(hsa_queue_destroy(queue));
    HSA(hsa_shut_down());
}
