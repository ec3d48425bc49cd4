// Leaves HSA functions by exceptions of their callbacks, where ROCr forwards these, goes on with
// another stack inside a callback, and looks at the stack there. Prints what happens: the same
// whether traced or not. Exits with 7. `hsa_throws wait` waits for a line of input once HSA is ready.
#include <cstring>
#include <execinfo.h>
#include <stdexcept>
#include <ucontext.h>

#include "hsa.hpp"

struct Noisy {
    const char *name;
    ~Noisy() { std::printf("destroyed: %s\n", name); }
};

// Calls a function with a callback that throws.
template <class Function> static void leave(const char *name, Function function) {
    for (int i = 0; i < 3; i++)
        try {
            Noisy local{name};
            function();
            std::printf("not thrown: %s\n", name);
        } catch (std::exception &error) {
            std::printf("caught: %s of %s\n", error.what(), name);
        }
}

// A callback of any type that throws.
template <class... Arguments> static hsa_status_t throws(Arguments...) { throw std::runtime_error("an exception"); }

static void *no_memory(size_t) { throw std::runtime_error("an exception"); }

static ucontext_t outside, inside;

static hsa_status_t callers(hsa_agent_t, void *count) {
    void *callers[64];
    *static_cast<int *>(count) = backtrace(callers, 64);
    return HSA_STATUS_INFO_BREAK;
}

static hsa_status_t goes_away(hsa_agent_t, void *) {
    swapcontext(&inside, &outside);
    return HSA_STATUS_INFO_BREAK;
}

static void iterate_in_fiber() {
    for (;;) {
        hsa_iterate_agents(goes_away, nullptr);
        std::printf("returned in the fiber\n");
    }
}

int main(int count, char **words) {
    Machine machine;
    std::printf("ready\n");
    std::fflush(stdout);
    if (count > 1 && !std::strcmp(words[1], "wait"))
        std::getchar();

    leave("hsa_iterate_agents", [] { hsa_iterate_agents(throws, nullptr); });
    leave("hsa_agent_iterate_regions", [&] { hsa_agent_iterate_regions(machine.gpu, throws, nullptr); });
    leave("hsa_amd_agent_iterate_memory_pools",
          [&] { hsa_amd_agent_iterate_memory_pools(machine.gpu, throws, nullptr); });

    void *memory;
    HSA(hsa_amd_memory_pool_allocate(machine.vram, 4096, 0, &memory));
    leave("hsa_amd_pointer_info", [&] {
        hsa_amd_pointer_info_t info{};
        info.size = sizeof info;
        uint32_t agents;
        hsa_agent_t *accessible;
        hsa_amd_pointer_info(memory, &info, no_memory, &agents, &accessible);
    });

    int depth = 0;
    hsa_iterate_agents(callers, &depth);
    std::printf("callers: %d\n", depth);

    static char stack[1 << 17];
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    makecontext(&inside, iterate_in_fiber, 0);
    for (int i = 0; i < 4; i++)
        swapcontext(&outside, &inside);

    HSA(hsa_amd_memory_pool_free(memory));
    HSA(hsa_shut_down());
    return 7;
}
