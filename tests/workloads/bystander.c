// Does nothing until standard input ends; prints `ready` first. Uses no ROCm library; with WITH_ROCM it
// defines functions of them, as a program does into which they were linked statically.
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
