// An HSA program without HIP that launches kernels. It loads a code object itself and writes
// packets into two queues, one or many per doorbell ring, with barriers between the queues.
// `hsa_dispatch MODULE [UNKNOWN]` takes the code object made from module.hip. With a second
// argument it ends with a packet of an undefined type.
#include <fcntl.h>
#include <vector>

#include "hsa.hpp"

static hsa_queue_t *make_queue(const Machine &machine) {
    hsa_queue_t *queue;
    HSA(hsa_queue_create(machine.gpu, 256, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX, &queue));
    HSA(hsa_amd_profiling_set_profiler_enabled(queue, 1));
    return queue;
}

static hsa_signal_t make_signal() {
    hsa_signal_t signal;
    HSA(hsa_signal_create(1, 0, nullptr, &signal));
    return signal;
}

// The kernel `from_module` of a code object.
struct Kernel {
    uint64_t object;
    uint32_t kernarg, group, scratch;

    Kernel(const Machine &machine, const char *path) {
        int file = open(path, O_RDONLY);
        if (file < 0) {
            std::perror(path);
            std::exit(2);
        }
        hsa_code_object_reader_t reader;
        HSA(hsa_code_object_reader_create_from_file(file, &reader));
        hsa_executable_t executable;
        HSA(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, nullptr,
                                      &executable));
        HSA(hsa_executable_load_agent_code_object(executable, machine.gpu, reader, nullptr, nullptr));
        HSA(hsa_executable_freeze(executable, nullptr));
        hsa_executable_symbol_t symbol;
        HSA(hsa_executable_get_symbol_by_name(executable, "from_module.kd", &machine.gpu, &symbol));
        const auto get = [symbol](hsa_executable_symbol_info_t what, void *value) {
            HSA(hsa_executable_symbol_get_info(symbol, what, value));
        };
        get(HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &object);
        get(HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &kernarg);
        get(HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &group);
        get(HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &scratch);
    }
};

// Number of launches; it makes all grids different.
static unsigned launches = 0;

static void dispatch(hsa_queue_t *queue, uint64_t index, const Kernel &kernel, void *arguments, hsa_signal_t done) {
    hsa_kernel_dispatch_packet_t packet{};
    packet.setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
    packet.workgroup_size_x = 64;
    packet.workgroup_size_y = packet.workgroup_size_z = 1;
    packet.grid_size_x = 64 * ++launches;
    packet.grid_size_y = packet.grid_size_z = 1;
    packet.private_segment_size = kernel.scratch;
    packet.group_segment_size = kernel.group;
    packet.kernel_object = kernel.object;
    packet.kernarg_address = arguments;
    packet.completion_signal = done;
    std::fprintf(log_file(),
                 R"({"said":"kernel","kernel":"from_module","device":0,"grid":[%u,1,1],"workgroup":[64,1,1]})" "\n",
                 packet.grid_size_x);
    write(queue, index, packet,
          HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER |
              HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
              HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE);
}

static void barrier(hsa_queue_t *queue, uint64_t index, const std::vector<hsa_signal_t> &after, hsa_signal_t done) {
    hsa_barrier_and_packet_t packet{};
    for (size_t i = 0; i < after.size(); i++)
        packet.dep_signal[i] = after[i];
    packet.completion_signal = done;
    write(queue, index, packet, HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: hsa_dispatch MODULE [UNKNOWN]\n");
        return 2;
    }
    Machine machine;
    Kernel kernel(machine, argv[1]);
    void *arguments;
    HSA(hsa_amd_memory_pool_allocate(machine.kernarg, 4096, 0, &arguments));
    HSA(hsa_amd_agents_allow_access(1, &machine.gpu, nullptr, arguments));
    std::memset(arguments, 0, kernel.kernarg);
    hsa_queue_t *first = make_queue(machine), *second = make_queue(machine);
    const hsa_signal_t none{};

    // First one packet per doorbell ring, then 8, 64 and a full ring buffer of packets per doorbell
    // ring.
    for (uint64_t batch : {1, 1, 1, 8, 64, 256}) {
        hsa_signal_t done = make_signal();
        uint64_t index = reserve(first, batch);
        for (uint64_t i = 0; i < batch; i++)
            dispatch(first, index + i, kernel, arguments, i + 1 == batch ? done : none);
        ring(first, index + batch - 1);
        wait_for(done);
        HSA(hsa_signal_destroy(done));
    }

    // The second queue's kernels wait for the first queue's through a barrier packet with three
    // dependencies.
    std::vector<hsa_signal_t> ended{make_signal(), make_signal(), make_signal()};
    hsa_signal_t passed = make_signal(), last = make_signal();
    uint64_t index = reserve(second, 2);
    barrier(second, index, ended, passed);
    dispatch(second, index + 1, kernel, arguments, last);
    ring(second, index + 1);
    index = reserve(first, ended.size());
    for (size_t i = 0; i < ended.size(); i++)
        dispatch(first, index + i, kernel, arguments, ended[i]);
    ring(first, index + ended.size() - 1);
    wait_for(last);
    if (hsa_signal_load_relaxed(passed) != 0) {
        std::fprintf(stderr, "the barrier was passed without its signal\n");
        return 1;
    }

    if (argc > 2) {
        // The HSA specification does not define type 9.
        index = reserve(first, 1);
        write(first, index, hsa_barrier_and_packet_t{}, 9 << HSA_PACKET_HEADER_TYPE);
        std::fflush(log_file());
        ring(first, index);
        wait_for(make_signal());
    }
    std::fclose(log_file());
    HSA(hsa_queue_destroy(first));
    HSA(hsa_queue_destroy(second));
    HSA(hsa_shut_down());
}
