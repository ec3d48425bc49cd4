// Calls whose arguments are flags and structures, passed by value, passed by pointer, and filled in
// by HIP. Logs for each what a tracer should show.
#include <cinttypes>
#include <string>

#include "said.hpp"

extern "C" __global__ void attributes(int *) {}

static void argument(const char *function, const char *name, const std::string &value) {
    std::fprintf(said::file(), R"({"said":"argument","function":"%s","name":"%s","value":"%s"})" "\n", function, name,
                 value.c_str());
}

static std::string hex(const void *pointer) {
    char text[32];
    std::snprintf(text, sizeof(text), "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(pointer));
    return text;
}

int main() {
    hipDeviceProp_t properties;
    HIP(hipGetDeviceProperties(&properties, 0));
    argument("hipGetDeviceProperties", "prop.name", properties.name);

    void *host;
    HIP(hipHostMalloc(&host, 4096, hipHostMallocPortable | hipHostMallocMapped));
    argument("hipHostMalloc", "flags", "hipHostMallocPortable|hipHostMallocMapped");
    hipStream_t stream;
    HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    argument("hipStreamCreateWithFlags", "flags", "hipStreamNonBlocking");
    hipEvent_t event;
    HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming | hipEventBlockingSync));
    argument("hipEventCreateWithFlags", "flags", "hipEventBlockingSync|hipEventDisableTiming");

    const hipExtent extent{100, 5, 3};
    hipPitchedPtr memory;
    HIP(hipMalloc3D(&memory, extent));
    argument("hipMalloc3D", "extent.width", "100");
    argument("hipMalloc3D", "extent.height", "5");
    argument("hipMalloc3D", "extent.depth", "3");
    argument("hipMalloc3D", "pitchedDevPtr.ptr", hex(memory.ptr));
    argument("hipMalloc3D", "pitchedDevPtr.pitch", std::to_string(memory.pitch));

    hipMemcpy3DParms copy{};
    copy.srcPtr = hipPitchedPtr{host, 128, 100, 5};
    copy.dstPtr = memory;
    copy.extent = extent;
    copy.kind = hipMemcpyHostToDevice;
    HIP(hipMemcpy3D(&copy));
    argument("hipMemcpy3D", "p.srcPtr.ptr", hex(host));
    argument("hipMemcpy3D", "p.srcPtr.pitch", "128");
    argument("hipMemcpy3D", "p.dstPtr.ptr", hex(memory.ptr));
    argument("hipMemcpy3D", "p.dstPtr.pitch", std::to_string(memory.pitch));
    argument("hipMemcpy3D", "p.extent.height", "5");
    argument("hipMemcpy3D", "p.kind", "hipMemcpyHostToDevice");

    hipPointerAttribute_t pointer;
    HIP(hipPointerGetAttributes(&pointer, memory.ptr));
    argument("hipPointerGetAttributes", "attributes.device", std::to_string(pointer.device));
    argument("hipPointerGetAttributes", "attributes.devicePointer", hex(pointer.devicePointer));
    argument("hipPointerGetAttributes", "attributes.isManaged", std::to_string(pointer.isManaged));

    hipFuncAttributes function;
    HIP(hipFuncGetAttributes(&function, reinterpret_cast<const void *>(&attributes)));
    argument("hipFuncGetAttributes", "attr.numRegs", std::to_string(function.numRegs));
    argument("hipFuncGetAttributes", "attr.maxThreadsPerBlock", std::to_string(function.maxThreadsPerBlock));
    argument("hipFuncGetAttributes", "attr.sharedSizeBytes", std::to_string(function.sharedSizeBytes));

    // For an array of structures, the first one is shown.
    hipMemPool_t pool;
    HIP(hipDeviceGetDefaultMemPool(&pool, 0));
    const hipMemAccessDesc access{{hipMemLocationTypeDevice, 0}, hipMemAccessFlagsProtReadWrite};
    HIP(hipMemPoolSetAccess(pool, &access, 1));
    argument("hipMemPoolSetAccess", "desc_list[0].location.type", "hipMemLocationTypeDevice");
    argument("hipMemPoolSetAccess", "desc_list[0].location.id", "0");
    argument("hipMemPoolSetAccess", "desc_list[0].flags", "hipMemAccessFlagsProtReadWrite");

    HIP(hipFree(memory.ptr));
    HIP(hipEventDestroy(event));
    HIP(hipStreamDestroy(stream));
    HIP(hipHostFree(host));
}
