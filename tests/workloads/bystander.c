// Prints `ready`, then does nothing until standard input ends. Uses no ROCm library. With WITH_ROCM
// it defines some of their functions itself, like a program that links them statically.
#include <stdio.h>
#include <unistd.h>

#ifdef WITH_ROCM
int hipInit(unsigned flags) { return (int)flags; }
int hsa_init(void) { return 0; }
#endif

int main(void) {
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}
