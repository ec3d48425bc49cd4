// Helpers shared by the HSA programs in this directory: agents, memory pools, and waiting.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

// Calls an HSA function; ends the program if it fails.
#define HSA(call)                                                       \
    do {                                                                \
        hsa_status_t status_ = (call);                                  \
        if (status_ != HSA_STATUS_SUCCESS) {                            \
            std::fprintf(stderr, "%s: status %#x\n", #call, status_);   \
            std::exit(1);                                               \
        }                                                               \
    } while (0)

// The machine's first CPU and GPU agents and their memory pools.
struct Machine {
    hsa_agent_t cpu{}, gpu{};
    // Host memory, host memory for kernel arguments, and GPU memory.
    hsa_amd_memory_pool_t host{}, kernarg{}, vram{};

    Machine() {
        HSA(hsa_init());
        HSA(hsa_iterate_agents(find_agent, this));
        if (!gpu.handle) {
            std::fprintf(stderr, "no GPU agent\n");
            std::exit(1);
        }
        HSA(hsa_amd_agent_iterate_memory_pools(cpu, find_host_pool, this));
        HSA(hsa_amd_agent_iterate_memory_pools(gpu, find_vram_pool, this));
    }

  private:
    static hsa_status_t find_agent(hsa_agent_t agent, void *machine) {
        auto *found = static_cast<Machine *>(machine);
        hsa_device_type_t type;
        HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
        if (type == HSA_DEVICE_TYPE_CPU && !found->cpu.handle)
            found->cpu = agent;
        if (type == HSA_DEVICE_TYPE_GPU && !found->gpu.handle)
            found->gpu = agent;
        return HSA_STATUS_SUCCESS;
    }

    static bool is_global(hsa_amd_memory_pool_t pool) {
        hsa_amd_segment_t segment;
        HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
        return segment == HSA_AMD_SEGMENT_GLOBAL;
    }

    static hsa_status_t find_host_pool(hsa_amd_memory_pool_t pool, void *machine) {
        auto *found = static_cast<Machine *>(machine);
        if (!is_global(pool))
            return HSA_STATUS_SUCCESS;
        uint32_t flags;
        HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
        if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT && !found->kernarg.handle)
            found->kernarg = pool;
        if (!found->host.handle)
            found->host = pool;
        return HSA_STATUS_SUCCESS;
    }

    static hsa_status_t find_vram_pool(hsa_amd_memory_pool_t pool, void *machine) {
        auto *found = static_cast<Machine *>(machine);
        if (is_global(pool) && !found->vram.handle)
            found->vram = pool;
        return HSA_STATUS_SUCCESS;
    }
};

// Waits for a completion signal whose initial value was 1.
inline void wait_for(hsa_signal_t signal) {
    if (hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED) != 0) {
        std::fprintf(stderr, "a signal went below 0\n");
        std::exit(1);
    }
}

// The file named by WORKLOAD_LOG; see said.hpp.
inline std::FILE *log_file() {
    static std::FILE *log = [] {
        const char *path = std::getenv("WORKLOAD_LOG");
        std::FILE *opened = path ? std::fopen(path, "a") : stdout;
        if (!opened) {
            std::perror(path);
            std::exit(2);
        }
        return opened;
    }();
    return log;
}

// Reserves `count` slots in a queue and waits until all of them are free. Returns the first index.
inline uint64_t reserve(hsa_queue_t *queue, uint64_t count) {
    uint64_t index = hsa_queue_add_write_index_relaxed(queue, count);
    while (index + count - hsa_queue_load_read_index_scacquire(queue) > queue->size) {
    }
    return index;
}

// Writes a packet into its slot. The header, which makes the packet valid, is written last.
template <typename Packet> void write(hsa_queue_t *queue, uint64_t index, const Packet &packet, uint16_t header) {
    static_assert(sizeof(Packet) == 64, "AQL packets have 64 bytes");
    auto *place = static_cast<Packet *>(queue->base_address) + index % queue->size;
    std::memcpy(reinterpret_cast<char *>(place) + 2, reinterpret_cast<const char *>(&packet) + 2, 62);
    __atomic_store_n(&place->header, header, __ATOMIC_RELEASE);
}

// Rings the doorbell for the packets up to `index`.
inline void ring(hsa_queue_t *queue, uint64_t index) {
    hsa_signal_store_screlease(queue->doorbell_signal, static_cast<hsa_signal_value_t>(index));
}
