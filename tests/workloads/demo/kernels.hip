// The kernels of demo.c, compiled into a separate code object. A software GPU does not execute
// them.
#include <hip/hip_runtime.h>

extern "C" __global__ void blur(const float *frame, float *blurred, unsigned width, unsigned pixels) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width && i + width < pixels)
        blurred[i] = (frame[i - width] + frame[i - 1] + frame[i] + frame[i + 1] + frame[i + width]) / 5;
    else if (i < pixels)
        blurred[i] = frame[i];
}

extern "C" __global__ void sharpen(const float *frame, const float *blurred, float *sharp, unsigned pixels) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pixels)
        sharp[i] = 2 * frame[i] - blurred[i];
}

extern "C" __global__ void histogram(const float *sharp, unsigned *bins, unsigned pixels) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pixels)
        atomicAdd(&bins[static_cast<int>(sharp[i]) & 255], 1U);
}
