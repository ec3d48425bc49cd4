// A callback that throws: the process is aborted. `throws CAPTURE`
#include <gputrace.h>
#include <cstdio>
#include <stdexcept>

static int on_event(const gputrace_event *, void *) { throw std::runtime_error("a callback's"); }

int main(int, char **argv) {
    gputrace_stream *stream = nullptr;
    if (gputrace_capture_open(argv[1], &stream) != GPUTRACE_STATUS_OK) return 2;
    try {
        gputrace_stream_each(stream, on_event, nullptr);
    } catch (const std::exception &) {
        std::puts("it was thrown through the library");
    }
    return 3;
}
