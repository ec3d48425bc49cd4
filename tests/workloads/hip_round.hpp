// One round of HIP calls of many shapes: 0 to 14 arguments, in registers and on the stack, integers
// of every width, structs by value in registers and in memory, floats, and pointers as results.
//
// Without a GPU most of them return hipErrorNoDevice early; the calls are real nevertheless.
// Included by hip_calls.cpp, which defines HIP(name) and HIP_AS(name, type) to log a call of a
// function that is linked or was found by dlsym.
#pragma once

#include <hip/hip_ext.h>
#include <hip/hip_runtime_api.h>

namespace workload {

// The source of the calls' arguments; `number` varies them from round to round.
struct Round {
    unsigned number;
    void *host = nullptr;
    char text[64] = {};
    int integers[4] = {};
    unsigned words[4] = {};
    size_t sizes[4] = {};
    float floats[2] = {};
    hipDeviceProp_t properties = {};
    hipPointerAttribute_t attributes = {};
    unsigned char memory[256] = {};
    hipMemcpy3DParms copy = {};

    template <class T>
    T handle(uint64_t value) const {
        return reinterpret_cast<T>(0x5a5a000000000000ull | value << 16 | number % 65536);
    }
};

// Makes a few calls in a fixed order, for programs that call at a given rate.
inline void short_round(Round &round) {
    int n = static_cast<int>(round.number);
    HIP_AS(hipMalloc, hipError_t(void **, size_t))(&round.host, 4096 + round.number);
    HIP(hipMemcpyAsync)(round.memory, round.memory + 64, 64, hipMemcpyHostToDevice, nullptr);
    HIP(hipSetDevice)(n);
    HIP(hipModuleLaunchKernel)
    (round.handle<hipFunction_t>(1), round.number, 2, 3, 4, 5, 6, 7, round.handle<hipStream_t>(2),
     round.handle<void **>(3), round.handle<void **>(4));
    HIP(hipGetErrorName)(static_cast<hipError_t>(100));
    HIP(hipDeviceSynchronize)();
}

// Returns whether a launch configuration could be pushed.
inline bool long_round(Round &round) {
    const unsigned i = round.number;
    const int n = static_cast<int>(i);
    auto *memory = round.memory;

    // No arguments.
    HIP(hipGetLastError)();
    HIP(hipPeekAtLastError)();
    HIP(hipDeviceSynchronize)();
    HIP(hipCtxSynchronize)();

    // One argument.
    HIP(hipInit)(i);
    HIP(hipGetDeviceCount)(&round.integers[0]);
    HIP(hipSetDevice)(-n);
    HIP(hipGetDevice)(&round.integers[1]);
    HIP(hipRuntimeGetVersion)(&round.integers[2]);
    HIP(hipDriverGetVersion)(&round.integers[3]);
    HIP(hipGetErrorName)(static_cast<hipError_t>(i % 800));
    HIP(hipGetErrorString)(static_cast<hipError_t>(100));
    HIP(hipApiName)(i % 300);
    HIP(hipStreamSynchronize)(nullptr);
    HIP(hipFree)(nullptr);
    HIP(hipStreamCreate)(round.handle<hipStream_t *>(1));
    round.copy.srcPtr = hipPitchedPtr{memory, 16, 4, i};
    round.copy.dstPos = hipPos{i, 5, 6};
    round.copy.extent = hipExtent{i + 1, 2, 3};
    round.copy.kind = hipMemcpyDeviceToHost;
    HIP(hipMemcpy3D)(&round.copy);
    HIP(hipMemcpy3D)(round.handle<const hipMemcpy3DParms *>(1));
    HIP(hipMemcpy3D)(nullptr);

    // Two arguments.
    HIP_AS(hipMalloc, hipError_t(void **, size_t))(&round.host, size_t{1} << (i % 60));
    HIP(hipGetDeviceProperties)(&round.properties, n);
    HIP(hipMemGetInfo)(&round.sizes[0], &round.sizes[1]);
    HIP(hipStreamCreateWithFlags)(round.handle<hipStream_t *>(1), hipStreamNonBlocking);
    HIP(hipEventCreateWithFlags)(round.handle<hipEvent_t *>(1), 0x80000000u | i);
    HIP(hipPointerGetAttributes)(&round.attributes, memory);
    HIP(hipTexRefSetMipmapLevelBias)(round.handle<textureReference *>(1), 1.5f);
    HIP(hipMalloc3D)(round.handle<hipPitchedPtr *>(1), hipExtent{i + 1, 2, 3});
    HIP(hipIpcOpenEventHandle)(round.handle<hipEvent_t *>(1), hipIpcEventHandle_t{{'e', 'v', 'e', 'n', 't'}});

    // Three arguments.
    HIP(hipDeviceGetAttribute)(&round.integers[0], hipDeviceAttributeWarpSize, n);
    HIP(hipMemset)(memory, n, i);
    HIP_AS(hipHostMalloc, hipError_t(void **, size_t, unsigned))
    (&round.host, 4096 + i, hipHostMallocPortable | hipHostMallocMapped | (i % 2 ? 0x100 : 0));
    HIP(hipStreamWaitEvent)(round.handle<hipStream_t>(1), round.handle<hipEvent_t>(2), i);
    HIP(hipMemsetD8)(memory, static_cast<unsigned char>(i), 7);
    HIP(hipMemsetD16)(memory, static_cast<unsigned short>(i), 7);
    HIP(hipEventElapsedTime)(&round.floats[0], round.handle<hipEvent_t>(1), round.handle<hipEvent_t>(2));
    HIP(hipTexRefSetMipmapLevelClamp)(round.handle<textureReference *>(1), 0.5f, 2.5f);
    HIP(hipModuleGetFunction)(round.handle<hipFunction_t *>(1), round.handle<hipModule_t>(2), "kernel");
    HIP(hipIpcOpenMemHandle)(&round.host, hipIpcMemHandle_t{{'m', 'e', 'm', 'o', 'r', 'y'}}, i);
    HIP(hipMemset3D)(hipPitchedPtr{memory, 16, 4, 4}, n, hipExtent{1, 2, i});

    // Four arguments.
    HIP(hipMemcpy)(memory, memory + 128, i, hipMemcpyDeviceToHost);
    HIP(hipMallocPitch)(&round.host, &round.sizes[0], i, 9);
    HIP(hipStreamAddCallback)(round.handle<hipStream_t>(1), round.handle<hipStreamCallback_t>(2), memory, i);
    HIP(hipDeviceGetP2PAttribute)(&round.integers[0], hipDevP2PAttrAccessSupported, n, n + 1);
    HIP(hipMemAdvise)(memory, i, hipMemAdviseSetReadMostly, n);

    // Five arguments.
    HIP(hipMemcpyAsync)(memory, memory + 128, i, hipMemcpyHostToDevice, round.handle<hipStream_t>(1));
    HIP(hipStreamWaitValue64)(round.handle<hipStream_t>(1), memory, ~uint64_t{0} - i, i, 0xf0f0f0f0f0f0f0f0);
    HIP(hipMemset2D)(memory, 16, n, 4, 4);
    HIP(hipMemcpyPeer)(memory, n, memory + 128, -n, i);
    HIP_AS(hipLaunchCooperativeKernel, hipError_t(const void *, dim3, dim3, void **, unsigned, hipStream_t))
    (round.handle<const void *>(1), dim3(i, 2, 3), dim3(4, 5, i), round.handle<void **>(2), i,
     round.handle<hipStream_t>(3));

    // Six arguments and more, the seventh and later ones on the stack.
    HIP(hipStreamGetCaptureInfo_v2)
    (round.handle<hipStream_t>(1), nullptr, nullptr, nullptr, nullptr, round.handle<size_t *>(2));
    HIP(hipLaunchKernel)
    (round.handle<const void *>(1), dim3(i + 1, 2, 3), dim3(4, 5, 6), round.handle<void **>(2), 64 + i,
     round.handle<hipStream_t>(3));
    HIP(hipMemcpy2D)(memory, 16, memory + 128, 16, 4, i, hipMemcpyDefault);
    HIP(hipMemcpy2DAsync)
    (memory, 16, memory + 128, 16, i, 4, hipMemcpyHostToHost, round.handle<hipStream_t>(1));
    HIP(hipMemcpy2DToArrayAsync)
    (round.handle<hipArray *>(1), i, 1, memory, 16, 4, 4, hipMemcpyHostToDevice, round.handle<hipStream_t>(2));
    HIP(hipExtLaunchKernel)
    (round.handle<const void *>(1), dim3(1, i, 3), dim3(4, i, 6), round.handle<void **>(2), i,
     round.handle<hipStream_t>(3), round.handle<hipEvent_t>(4), round.handle<hipEvent_t>(5), -n);
    HIP(hipModuleLaunchKernel)
    (round.handle<hipFunction_t>(1), i, 2, 3, 4, 5, 6, 7, round.handle<hipStream_t>(2),
     round.handle<void **>(3), round.handle<void **>(4));
    HIP_MANGLED(hipExtModuleLaunchKernel)
    (round.handle<hipFunction_t>(1), i, 2, 3, 4, 5, 6, 0x123456789ab, round.handle<hipStream_t>(2),
     round.handle<void **>(3), round.handle<void **>(4), round.handle<hipEvent_t>(5),
     round.handle<hipEvent_t>(6), i);

    // The calls into which the compiler turns a launch, made by hand.
    hipError_t pushed = HIP(__hipPushCallConfiguration)(dim3(i, 2, 3), dim3(4, 5, 6), i, round.handle<hipStream_t>(1));
    dim3 grid, block;
    hipStream_t stream = nullptr;
    HIP(__hipPopCallConfiguration)(&grid, &block, &round.sizes[0], &stream);
    return pushed == hipSuccess;
}

}  // namespace workload
