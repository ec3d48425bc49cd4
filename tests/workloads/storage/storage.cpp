// Calls stand-ins for hipFile and rocSHMEM, and checks that they did what they were asked to do.
#include <fcntl.h>
#include <unistd.h>

#include "hipfile.h"
#include "rocshmem.hpp"

int main(int, char **argv) {
    char buffer[64] = {};
    void *handle = nullptr;
    hipFileDriverOpen();
    description description = {};
    description.type = OPAQUE_FD;
    description.fd = -1;
    if (hipFileHandleRegister(&handle, &description).error != INVALID_VALUE) return 1;
    description.fd = dup2(open(argv[0], O_RDONLY), 123);
    if (hipFileHandleRegister(&handle, &description).error != 0) return 2;
    if (hipFileBufRegister(nullptr, 64, 0).hip_error != HIP_ERROR_INVALID_VALUE) return 3;
    if (hipFileRead(handle, buffer, 32, 1, 8) != 32 || buffer[8] != 'E') return 4;
    if (hipFileRead((void *)999, buffer, 32, 0, 0) != -1) return 5;
    hipFileHandleDeregister(handle);

    auto *stream = reinterpret_cast<ihipStream_t *>(0x5000);
    auto *memory = static_cast<char *>(rocshmem::rocshmem_malloc(4096));
    if (rocshmem::rocshmem_my_pe() != 0) return 6;
    rocshmem::rocshmem_putmem_on_stream(memory, buffer, 64, 0, stream);
    rocshmem::rocshmem_putmem_signal_on_stream(memory + 64, buffer, 64, reinterpret_cast<uint64_t *>(memory + 1024), 7, 9, 0, stream);
    rocshmem::rocshmem_quiet_on_stream(stream);
    return memory[64 + 8] == 'E' && memory[1024] == 7 ? 0 : 7;
}
