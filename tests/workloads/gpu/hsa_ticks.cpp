// An HSA program without HIP: barrier packets and copies, and the ticks that their signals got.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#define HSA(call)                                                       \
    do {                                                                \
        hsa_status_t status_ = (call);                                  \
        if (status_ != HSA_STATUS_SUCCESS) {                            \
            std::fprintf(stderr, "%s: status %#x\n", #call, status_);   \
            std::exit(1);                                               \
        }                                                               \
    } while (0)

static hsa_agent_t cpu, gpu;
static hsa_amd_memory_pool_t host_pool, gpu_pool;

static hsa_status_t find_agent(hsa_agent_t agent, void *) {
    hsa_device_type_t type;
    HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    if (type == HSA_DEVICE_TYPE_CPU && !cpu.handle)
        cpu = agent;
    if (type == HSA_DEVICE_TYPE_GPU && !gpu.handle)
        gpu = agent;
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t find_pool(hsa_amd_memory_pool_t pool, void *found) {
    hsa_amd_segment_t segment;
    HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
    auto *result = static_cast<hsa_amd_memory_pool_t *>(found);
    if (segment == HSA_AMD_SEGMENT_GLOBAL && !result->handle)
        *result = pool;
    return HSA_STATUS_SUCCESS;
}

static std::FILE *log_file;

// The raw fields of a completed signal, and the same span as HSA converts it.
static void say(const char *what, hsa_signal_t signal, uint64_t start, uint64_t end, size_t bytes) {
    auto *raw = reinterpret_cast<const uint64_t *>(signal.handle);
    bool copy = bytes != 0;
    // SharedSignal of ROCr: an amd_signal_t, then sdma_start_ts at byte 64 and sdma_end_ts at byte 96.
    uint64_t begin_ticks = copy ? raw[8] : raw[4], end_ticks = copy ? raw[12] : raw[5];
    std::fprintf(log_file,
                 R"({"said":"%s","signal":%llu,"begin_ticks":%llu,"end_ticks":%llu,"begin_ns":%llu,"end_ns":%llu,"bytes":%zu})" "\n",
                 what, (unsigned long long)signal.handle, (unsigned long long)begin_ticks,
                 (unsigned long long)end_ticks, (unsigned long long)start, (unsigned long long)end, bytes);
}

static void wait_for(hsa_signal_t signal) {
    if (hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED) != 0) {
        std::fprintf(stderr, "a signal went below 0\n");
        std::exit(1);
    }
}

int main() {
    const char *path = std::getenv("WORKLOAD_LOG");
    log_file = path ? std::fopen(path, "a") : stdout;
    HSA(hsa_init());
    HSA(hsa_iterate_agents(find_agent, nullptr));
    if (!gpu.handle) {
        std::fprintf(stderr, "no GPU agent\n");
        return 1;
    }
    HSA(hsa_amd_agent_iterate_memory_pools(cpu, find_pool, &host_pool));
    HSA(hsa_amd_agent_iterate_memory_pools(gpu, find_pool, &gpu_pool));
    HSA(hsa_amd_profiling_async_copy_enable(true));

    hsa_queue_t *queue;
    HSA(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX, &queue));
    HSA(hsa_amd_profiling_set_profiler_enabled(queue, 1));
    hsa_signal_t signals[200];
    for (hsa_signal_t &signal : signals) {
        HSA(hsa_signal_create(1, 0, nullptr, &signal));
        uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
        auto *packet = static_cast<hsa_barrier_and_packet_t *>(queue->base_address) + index % queue->size;
        while (index - hsa_queue_load_read_index_scacquire(queue) >= queue->size) {
        }
        std::memset(reinterpret_cast<char *>(packet) + 2, 0, sizeof *packet - 2);
        packet->completion_signal = signal;
        uint16_t header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER;
        __atomic_store_n(&packet->header, header, __ATOMIC_RELEASE);
        hsa_signal_store_screlease(queue->doorbell_signal, static_cast<hsa_signal_value_t>(index));
    }
    for (hsa_signal_t signal : signals) {
        wait_for(signal);
        hsa_amd_profiling_dispatch_time_t time;
        HSA(hsa_amd_profiling_get_dispatch_time(gpu, signal, &time));
        say("barrier", signal, time.start, time.end, 0);
    }

    void *host, *device;
    const size_t largest = 1 << 20;
    HSA(hsa_amd_memory_pool_allocate(host_pool, largest, 0, &host));
    HSA(hsa_amd_memory_pool_allocate(gpu_pool, largest, 0, &device));
    HSA(hsa_amd_agents_allow_access(1, &gpu, nullptr, host));
    for (size_t bytes = 4; bytes <= largest; bytes *= 4) {
        hsa_signal_t signal;
        HSA(hsa_signal_create(1, 0, nullptr, &signal));
        HSA(hsa_amd_memory_async_copy(device, gpu, host, cpu, bytes, 0, nullptr, signal));
        wait_for(signal);
        hsa_amd_profiling_async_copy_time_t time;
        HSA(hsa_amd_profiling_get_async_copy_time(signal, &time));
        say("copy", signal, time.start, time.end, bytes);
    }
    std::fclose(log_file);
    HSA(hsa_queue_destroy(queue));
    HSA(hsa_shut_down());
}
