/*
 * Starts a program and prints its kernels and copies, and what was lost: what a tool does with
 * roctracer's activity records. With one argument that ends in .gtcap, reads a capture.
 *
 *   cc -o activity activity.c $(pkg-config --cflags --libs gputrace)
 *   sudo ./activity ./app its arguments
 *   ./activity run.gtcap
 */
#include <gputrace.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_time(const gputrace_time *time) {
    if (time->is_known)
        printf("%" PRIu64 " ns", time->end_ns - time->begin_ns);
    else
        printf("not known how long");
}

static void print(const gputrace_event *event) {
    switch (event->kind) {
    case GPUTRACE_EVENT_KIND_DISPATCH:
        printf("kernel %s by %" PRIu64 ": ", event->dispatch->kernel_name,
               event->dispatch->correlation_id);
        print_time(&event->dispatch->time);
        printf("\n");
        break;
    case GPUTRACE_EVENT_KIND_COPY:
        printf("%s of %" PRIu64 " bytes by %" PRIu64 ": ", event->copy->direction,
               event->copy->bytes, event->copy->correlation_id);
        print_time(&event->copy->time);
        printf("\n");
        break;
    case GPUTRACE_EVENT_KIND_ACCOUNT:
        printf("seen %" PRIu64 ", lost %" PRIu64 "\n", event->account->seen,
               event->account->dropped);
        break;
    default:
        break;
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s PROGRAM [ARGUMENT]... | CAPTURE.gtcap\n", argv[0]);
        return 2;
    }
    gputrace_options *options = gputrace_options_new();
    gputrace_stream *stream = NULL;
    const gputrace_event *event;
    gputrace_status status;
    size_t length = strlen(argv[1]);
    if (argc == 2 && length > 6 && strcmp(argv[1] + length - 6, ".gtcap") == 0) {
        status = gputrace_capture_open(argv[1], &stream);
    } else {
        gputrace_options_launch(options, (const char *const *)&argv[1]);
        gputrace_options_domain(options, "HIP_RUNTIME_API");
        gputrace_options_domain(options, "KERNEL_DISPATCH");
        gputrace_options_domain(options, "MEMORY_COPY");
        status = gputrace_session_start(options, &stream);
    }
    while (status == GPUTRACE_STATUS_OK) {
        status = gputrace_stream_next(stream, &event);
        if (status == GPUTRACE_STATUS_OK) print(event);
    }
    if (status != GPUTRACE_STATUS_END) fprintf(stderr, "%s\n", gputrace_error_text());
    gputrace_stream_free(stream);
    gputrace_options_free(options);
    return status == GPUTRACE_STATUS_END ? EXIT_SUCCESS : EXIT_FAILURE;
}
