// Captures a graph and replays it: `graph [NODES] [REPLAYS]`.
#include "said.hpp"

extern "C" __global__ void node(int *) {}

int main(int argc, char **argv) {
    const unsigned nodes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100;
    const unsigned replays = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 10;
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    for (unsigned i = 0; i < nodes; i++)
        node<<<dim3(1 + i), dim3(64), 0, stream>>>(nullptr);
    hipGraph_t graph;
    HIP(hipStreamEndCapture(stream, &graph));
    hipGraphExec_t ready;
    HIP(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0));
    for (unsigned replay = 0; replay < replays; replay++) {
        for (unsigned i = 0; i < nodes; i++)
            said::kernel("node", 0, dim3(1 + i), dim3(64));
        HIP(hipGraphLaunch(ready, stream));
    }
    HIP(hipStreamSynchronize(stream));
    HIP(hipGraphExecDestroy(ready));
    HIP(hipGraphDestroy(graph));
}
