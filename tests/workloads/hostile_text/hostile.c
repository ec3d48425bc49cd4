// A program that tries to write to the terminal of a user who traces it. `hostile` calls once for
// each string when it reads a line, answers "done", and ends with its input. `hostile once` makes
// the calls once. The program may be run under any name.
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

extern int hipModuleLoad(void **module, const char *fname);

static const char *const STRINGS[] = {
    // A title, a bell, a cleared screen, and a line that gputrace never wrote.
    "k\033]0;pwned\007\033[2J\n  0.000001  1/1  hipFree(ptr=0x0) = 0 hipSuccess <1 us>",
    // The 8-bit control sequence introducer in UTF-8, and right-to-left text.
    "\302\2332J \342\200\256gpj.elif",
    "\r\ngputrace: forged",
    // A spreadsheet formula.
    "=cmd|' /C calc'!A0",
    // Invalid UTF-8.
    "\377\233",
};

static void call(void) {
    for (size_t i = 0; i < sizeof STRINGS / sizeof *STRINGS; i++) {
        void *module;
        hipModuleLoad(&module, STRINGS[i]);
    }
}

int main(int argc, char **argv) {
    prctl(PR_SET_NAME, "h\033[31m\ncomm");
    if (argc > 1 && strcmp(argv[1], "once") == 0) {
        call();
        return 0;
    }
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        call();
        puts("done");
        fflush(stdout);
    }
    return 0;
}
