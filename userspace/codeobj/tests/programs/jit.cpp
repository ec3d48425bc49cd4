// Compiles a kernel at run time, launches it, unloads it, and does so again with another kernel of the same
// length: `jit COUNT`. Ends, or hangs in a kernel that the software GPU is told never to end.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <hip/hip_runtime.h>
#include <hip/hiprtc.h>

#define CHECK(call)                                                \
    do {                                                           \
        auto result_ = (call);                                     \
        if (result_ != decltype(result_)(0)) {                     \
            std::fprintf(stderr, "%s: %d\n", #call, int(result_)); \
            std::_Exit(1);                                         \
        }                                                          \
    } while (0)

int main(int argc, char **argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 2;
    void *memory;
    CHECK(hipMalloc(&memory, 4096));
    for (int i = 0; i < count; i++) {
        const std::string name = "compiled_" + std::to_string(100 + i);
        const std::string source = "extern \"C\" __global__ void " + name + "(int *p) { p[threadIdx.x] = 7; }";
        hiprtcProgram program;
        CHECK(hiprtcCreateProgram(&program, source.c_str(), "jit.hip", 0, nullptr, nullptr));
        const char *options[] = {"--offload-arch=gfx906"};
        CHECK(hiprtcCompileProgram(program, 1, options));
        size_t size;
        CHECK(hiprtcGetCodeSize(program, &size));
        std::vector<char> code(size);
        CHECK(hiprtcGetCode(program, code.data()));
        CHECK(hiprtcDestroyProgram(&program));
        hipModule_t module;
        hipFunction_t function;
        CHECK(hipModuleLoadData(&module, code.data()));
        CHECK(hipModuleGetFunction(&function, module, name.c_str()));
        void *arguments[] = {&memory};
        CHECK(hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
        CHECK(hipDeviceSynchronize());
        CHECK(hipModuleUnload(module));
    }
}
