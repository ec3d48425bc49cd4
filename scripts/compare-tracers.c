/* What scripts/compare-tracers traces: with -DLIBRARY the library whose function is called, else
 * the program `calls LIBRARY COUNT`, which calls it and prints what a call took. */
#ifdef LIBRARY

/* Its name makes gputrace take it for one of HIP's. Like most of those it begins with `push`. */
__asm__(".text\n"
        ".globl hipCompareTracers\n"
        ".type hipCompareTracers, @function\n"
        "hipCompareTracers:\n"
        "    push %rbp\n"
        "    mov %rsp, %rbp\n"
        "    mov %edi, %eax\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size hipCompareTracers, . - hipCompareTracers\n");

#else

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: calls LIBRARY COUNT\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*function)(int) = library ? (int (*)(int))dlsym(library, "hipCompareTracers") : NULL;
    long count = atol(argv[2]);
    if (!function || count <= 0) {
        fprintf(stderr, "calls: %s\n", library ? "no such function, or no count" : dlerror());
        return 1;
    }
    double begin = cpu_ns();
    for (long call = 0; call < count; call++)
        function((int)call);
    printf("calls: %.1f ns\n", (cpu_ns() - begin) / (double)count);
    return 0;
}

#endif
