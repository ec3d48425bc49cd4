// The code object that features.cpp loads.
#include <hip/hip_runtime.h>

extern "C" __global__ void from_module(int *) {}
