// Declarations shared by the files of `chaos`.
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "../synthetic/sites.h"
#include "shared.h"

enum { PAGE = 4096 };

extern struct shared *shared;
extern char **arguments;
extern unsigned depth;  // 0 in the first process, 1 in its children, ...

// Records a line of observations.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Waits for a child to end and records how it ended, along with any stops seen before.
void say_end(const char *what, pid_t child);

// Ends this process, which cannot do its job.
_Noreturn void give_up(const char *what);

// The next random number, and the next random number below a limit.
uint64_t next(uint64_t *state);
unsigned below(uint64_t *state, unsigned limit);

// Creates a child that does not outlive its parent. Returns 0 in the child.
pid_t new_child(void);

// Makes a HIP call and counts it before and after, so that traces can be checked against the
// counts.
#define CALL(expression)                        \
    ({                                          \
        atomic_fetch_add(&shared->begun, 1);    \
        __auto_type result_ = (expression);     \
        atomic_fetch_add(&shared->done, 1);     \
        result_;                                \
    })

uint64_t some_calls(unsigned count);

// Actions defined in hostile.c. Each draws its variations from `random`.
void act_hang(uint64_t *random);
void act_load(uint64_t *random);
void act_names(uint64_t *random);
void act_forge(uint64_t *random);

// Starts a process that hangs in a call until it is killed.
pid_t start_hung(void);
