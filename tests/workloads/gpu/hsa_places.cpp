// Copies between all kinds of memory, some of which name other agents than those of the memory, as
// OpenMP's runtime does (the GPU on both sides). Each route has a size of its own. Logs them.
#include <vector>

#include "hsa.hpp"

constexpr size_t largest = 1 << 20;

static hsa_signal_t done;

static void copy(const char *direction, void *to, hsa_agent_t to_agent, const void *from,
                 hsa_agent_t from_agent) {
    static size_t bytes = largest;
    bytes -= 4096;
    std::fprintf(log_file(), R"({"said":"copy","direction":"%s","bytes":%zu})" "\n", direction, bytes);
    hsa_signal_store_relaxed(done, 1);
    HSA(hsa_amd_memory_async_copy(to, to_agent, from, from_agent, bytes, 0, nullptr, done));
    wait_for(done);
}

static void *allocate(hsa_amd_memory_pool_t pool, const std::vector<hsa_agent_t> &users) {
    void *memory;
    HSA(hsa_amd_memory_pool_allocate(pool, largest, 0, &memory));
    HSA(hsa_amd_agents_allow_access(users.size(), users.data(), nullptr, memory));
    return memory;
}

static hsa_status_t find_gpu(hsa_agent_t agent, void *found) {
    hsa_device_type_t type;
    HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    if (type == HSA_DEVICE_TYPE_GPU)
        static_cast<std::vector<hsa_agent_t> *>(found)->push_back(agent);
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t find_pool(hsa_amd_memory_pool_t pool, void *found) {
    hsa_amd_segment_t segment;
    HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
    auto *first = static_cast<hsa_amd_memory_pool_t *>(found);
    if (segment == HSA_AMD_SEGMENT_GLOBAL && !first->handle)
        *first = pool;
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t find_region(hsa_region_t region, void *found) {
    hsa_region_segment_t segment;
    HSA(hsa_region_get_info(region, HSA_REGION_INFO_SEGMENT, &segment));
    auto *first = static_cast<hsa_region_t *>(found);
    if (segment == HSA_REGION_SEGMENT_GLOBAL && !first->handle)
        *first = region;
    return HSA_STATUS_SUCCESS;
}

int main() {
    Machine machine;
    hsa_agent_t cpu = machine.cpu, gpu = machine.gpu;
    std::vector<hsa_agent_t> gpus;
    HSA(hsa_iterate_agents(find_gpu, &gpus));
    HSA(hsa_amd_profiling_async_copy_enable(true));
    HSA(hsa_signal_create(1, 0, nullptr, &done));

    void *locked, *locked_to_pool, *of_region;
    void *host = std::calloc(2, largest), *second = static_cast<char *>(host) + largest;
    HSA(hsa_amd_memory_lock(host, largest, nullptr, 0, &locked));
    HSA(hsa_amd_memory_lock_to_pool(second, largest, nullptr, 0, machine.host, 0, &locked_to_pool));
    hsa_region_t region{};
    HSA(hsa_agent_iterate_regions(gpu, find_region, &region));
    HSA(hsa_memory_allocate(region, largest, &of_region));
    void *pinned = allocate(machine.host, gpus);
    void *device = allocate(machine.vram, gpus);

    copy("h2d", device, gpu, locked, gpu);
    copy("d2h", locked, gpu, device, gpu);
    copy("h2d", device, gpu, locked_to_pool, gpu);
    copy("d2h", locked_to_pool, gpu, of_region, gpu);
    copy("h2d", of_region, gpu, pinned, gpu);
    copy("d2h", pinned, gpu, device, gpu);
    copy("d2d", of_region, gpu, device, gpu);
    copy("h2h", pinned, gpu, locked, gpu);
    // Swapped, and right.
    copy("h2d", device, cpu, locked, gpu);
    copy("d2h", pinned, gpu, device, cpu);
    copy("h2d", device, gpu, locked, cpu);
    copy("d2h", locked, cpu, device, gpu);
    for (size_t other = 1; other < gpus.size(); other++) {
        hsa_amd_memory_pool_t pool{};
        HSA(hsa_amd_agent_iterate_memory_pools(gpus[other], find_pool, &pool));
        void *there = allocate(pool, gpus);
        copy("peer", there, gpu, device, gpu);
        copy("peer", device, gpu, there, gpus[other]);
        HSA(hsa_amd_memory_pool_free(there));
    }
    // What was the GPU's is the host's: malloc, or another pool, may use the address again.
    HSA(hsa_amd_memory_pool_free(device));
    void *again = allocate(machine.host, gpus);
    copy("d2h", again, gpu, of_region, gpu);
    HSA(hsa_amd_memory_unlock(host));
    HSA(hsa_amd_memory_unlock(second));
    HSA(hsa_memory_free(of_region));
    std::fclose(log_file());
    HSA(hsa_shut_down());
}
