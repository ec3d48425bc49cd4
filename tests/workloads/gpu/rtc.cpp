// A kernel compiled at run time by hipRTC.
#include <string>
#include <vector>

#include <hip/hiprtc.h>

#include "said.hpp"

#define RTC(call)                                                  \
    do {                                                           \
        hiprtcResult result_ = (call);                             \
        if (result_ != HIPRTC_SUCCESS)                             \
            said::fail(#call, hiprtcGetErrorString(result_));      \
    } while (0)

static const char *source = R"(
extern "C" __global__ void compiled_late(float *numbers, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        numbers[i] *= 2;
}
)";

int main() {
    hiprtcProgram program;
    RTC(hiprtcCreateProgram(&program, source, "late.hip", 0, nullptr, nullptr));
    // The software GPU's default architecture, which every release's compiler supports.
    const char *options[] = {"--offload-arch=gfx906"};
    hiprtcResult result = hiprtcCompileProgram(program, 1, options);
    if (result != HIPRTC_SUCCESS) {
        size_t size = 0;
        hiprtcGetProgramLogSize(program, &size);
        std::vector<char> log(size + 1);
        hiprtcGetProgramLog(program, log.data());
        said::fail("hiprtcCompileProgram", log.data());
    }
    size_t size;
    RTC(hiprtcGetCodeSize(program, &size));
    std::vector<char> code(size);
    RTC(hiprtcGetCode(program, code.data()));
    RTC(hiprtcDestroyProgram(&program));

    hipModule_t module;
    hipFunction_t function;
    HIP(hipModuleLoadData(&module, code.data()));
    HIP(hipModuleGetFunction(&function, module, "compiled_late"));
    int n = 1000;
    float *numbers;
    HIP(hipMalloc(&numbers, n * sizeof *numbers));
    void *arguments[] = {&numbers, &n};
    for (unsigned grid = 1; grid <= 5; grid++) {
        said::kernel("compiled_late", 0, dim3(grid), dim3(256));
        HIP(hipModuleLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
    }
    HIP(hipDeviceSynchronize());
    HIP(hipModuleUnload(module));
    HIP(hipFree(numbers));
}
