// Allocates physical memory separately from addresses (`hsa_amd_vmem_handle_create`). ROCr has this
// since version 6, and offers it where the KFD interface version is 1.15 or later. Logs the result.
#include <dlfcn.h>

#include "hsa.hpp"

// Copied from hsa_ext_amd.h of ROCm 6, which is newer than the header used to compile this.
struct Handle {
    uint64_t handle;
};
using Create = hsa_status_t (*)(hsa_amd_memory_pool_t, size_t, int type, uint64_t flags, Handle *);
using Release = hsa_status_t (*)(Handle);
constexpr int pinned = 1;

template <typename Function> static Function function(const char *name) {
    auto *found = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    if (!found) {
        std::fprintf(stderr, "%s is not there\n", name);
        std::exit(1);
    }
    return found;
}

int main() {
    Machine machine;
    auto create = function<Create>("hsa_amd_vmem_handle_create");
    auto release = function<Release>("hsa_amd_vmem_handle_release");
    Handle handles[3];
    for (size_t number = 0; number < 3; number++) {
        size_t bytes = (number + 1) << 21;
        HSA(create(machine.vram, bytes, pinned, 0, &handles[number]));
        std::fprintf(log_file(), R"({"said":"handle","handle":%llu,"bytes":%zu})" "\n",
                     (unsigned long long)handles[number].handle, bytes);
    }
    // The last handle is never released.
    HSA(release(handles[1]));
    HSA(release(handles[0]));
    std::fclose(log_file());
    HSA(hsa_shut_down());
}
