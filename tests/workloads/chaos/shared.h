// State shared by the processes of one run of `chaos` and by the test. It is a file mapped by all
// of them, so nothing is lost however a process ends. tests/chaos/src/shared.rs reads it; the
// layouts must agree.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { TEXT_SIZE = 1 << 20 };

struct shared {
    atomic_ullong pid;     // process id of the first process
    atomic_ullong begun;   // HIP calls, counted just before each call
    atomic_ullong done;    // HIP calls, counted after each call
    atomic_ullong steps;   // actions completed, in all passes
    atomic_ullong passes;  // completed passes over the list of actions
    atomic_ullong stop;    // set by the test to make this pass the last
    atomic_ullong length;  // bytes of `text`
    char text[TEXT_SIZE];  // observations of the current pass
};
