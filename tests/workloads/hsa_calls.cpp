// Calls HSA directly, N rounds, and logs each call (see call_log.h). Without a GPU, hsa_init fails
// and most other calls report that the runtime is not initialised; the calls are real nevertheless.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ext_image.h>
#include <stdio.h>
#include <stdlib.h>

#include "call_log.hpp"

static hsa_status_t on_agent(hsa_agent_t, void *) { return HSA_STATUS_SUCCESS; }

static void on_queue_error(hsa_status_t, hsa_queue_t *, void *) {}

int main(int argc, char **argv) {
    unsigned count = argc > 1 ? static_cast<unsigned>(strtoul(argv[1], nullptr, 10)) : 1;
    for (unsigned i = 0; i < count; i++) {
        hsa_status_t status = LOGGED(hsa_init);
        const char *text = nullptr;
        LOGGED(hsa_status_string, status, &text);
        uint64_t value = 0;
        LOGGED(hsa_system_get_info, HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY, &value);
        bool supported = false;
        LOGGED(hsa_system_extension_supported, HSA_EXTENSION_AMD_LOADER, static_cast<uint16_t>(i), 0, &supported);
        LOGGED(hsa_iterate_agents, on_agent, &value);
        hsa_agent_t agent = {0x1234567800000000ull + i};
        hsa_signal_t signal = {0};
        hsa_queue_t *queue = nullptr;
        // Eight arguments: two on the stack.
        LOGGED(hsa_queue_create, agent, 4096 + i, HSA_QUEUE_TYPE_MULTI, on_queue_error, &value, UINT32_MAX, i,
               &queue);
        LOGGED(hsa_amd_agent_memory_pool_get_info, agent, hsa_amd_memory_pool_t{i},
               HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS, &value);
        LOGGED(hsa_signal_create, static_cast<hsa_signal_value_t>(-1) - i, 0, nullptr, &signal);
        LOGGED(hsa_shut_down);
    }
}
