// What the processes of one run of `chaos` share with each other and with the test: a file that all
// of them map, so that nothing is lost however one of them ends. tests/chaos/src/shared.rs reads
// it; the layout must agree.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { TEXT_SIZE = 1 << 20 };

struct shared {
    atomic_ullong pid;     // of the first process
    atomic_ullong begun;   // calls of HIP functions that were about to be made
    atomic_ullong done;    // of these, those that returned
    atomic_ullong steps;   // actions done, in all passes
    atomic_ullong passes;  // times that the list of actions was gone through
    atomic_ullong stop;    // set by the test: this pass is the last
    atomic_ullong length;  // bytes of `text`
    char text[TEXT_SIZE];  // what was seen in the pass under way
};
