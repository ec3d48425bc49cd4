/*
 * Prints every HIP call of a process with its arguments: what a tool does with roctracer's API
 * callbacks.
 *
 *   cc -o api_callbacks api_callbacks.c $(pkg-config --cflags --libs gputrace)
 *   sudo ./api_callbacks PID
 */
#include <gputrace.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int on_event(const gputrace_event *event, void *user) {
    gputrace_stream *stream = user;
    const gputrace_argument *arguments;
    size_t count;
    if (event->kind == GPUTRACE_EVENT_KIND_NOTICE) fprintf(stderr, "%s\n", event->text);
    if (event->kind != GPUTRACE_EVENT_KIND_CALL) return 0;
    const gputrace_call *call = event->call;
    printf("%u %" PRIu64 " ns %s(", call->tid, call->end_ns - call->begin_ns, call->name);
    if (gputrace_stream_arguments(stream, &arguments, &count) != GPUTRACE_STATUS_OK) return 1;
    for (size_t i = 0; i < count; i++)
        printf("%s%s=%s", i ? ", " : "", arguments[i].name, arguments[i].value);
    printf(") = %" PRIu64 "\n", call->result);
    return 0;
}

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, gputrace_error_text());
    return EXIT_FAILURE;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s PID [OPTION OF GPUTRACE]...\n", argv[0]);
        return 2;
    }
    gputrace_options *options = gputrace_options_new();
    gputrace_stream *stream = NULL;
    int result = EXIT_SUCCESS;
    gputrace_options_attach(options, (uint32_t)strtoul(argv[1], NULL, 10));
    for (int i = 2; i < argc; i++) gputrace_options_add(options, argv[i]);
    if (gputrace_options_domain(options, "HIP_RUNTIME_API") != GPUTRACE_STATUS_OK ||
        gputrace_session_start(options, &stream) != GPUTRACE_STATUS_OK)
        result = fail("cannot start");
    else if (gputrace_stream_each(stream, on_event, stream) != GPUTRACE_STATUS_END)
        result = fail("cannot go on");
    else if (gputrace_stream_finish(stream, NULL) != GPUTRACE_STATUS_OK)
        result = fail("not complete");
    gputrace_stream_free(stream);
    gputrace_options_free(options);
    return result;
}
