/*
 * Joins the kernels of a capture with the calls that launched them and with the external correlation
 * ids that the program had set (roctracer_activity_push_external_correlation_id).
 *
 *   cc -o external_correlation external_correlation.c $(pkg-config --cflags --libs gputrace)
 *   ./external_correlation run.gtcap
 */
#include <gputrace.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct call {
    uint64_t id;
    const char *name;
};

static int by_id(const void *one, const void *other) {
    uint64_t a = ((const struct call *)one)->id, b = ((const struct call *)other)->id;
    return (a > b) - (a < b);
}

/* Takes all events, and collects the calls or prints the dispatches. */
static gputrace_status pass(const char *path, gputrace_stream **stream, struct call **calls,
                            size_t *count, int prints) {
    const gputrace_event *event;
    gputrace_status status = gputrace_capture_open(path, stream);
    while (status == GPUTRACE_STATUS_OK) {
        status = gputrace_stream_next(*stream, &event);
        if (status != GPUTRACE_STATUS_OK) break;
        if (event->kind == GPUTRACE_EVENT_KIND_CALL && !prints) {
            if (*count % 4096 == 0) *calls = realloc(*calls, (*count + 4096) * sizeof **calls);
            if (!*calls) abort();
            /* Names of calls are valid as long as the stream. */
            (*calls)[*count].id = event->call->correlation_id;
            (*calls)[(*count)++].name = event->call->name;
        } else if (event->kind == GPUTRACE_EVENT_KIND_DISPATCH && prints) {
            const gputrace_dispatch *one = event->dispatch;
            struct call key = {one->correlation_id, NULL};
            const struct call *call =
                *count ? bsearch(&key, *calls, *count, sizeof key, by_id) : NULL;
            printf("%s by %s", one->kernel_name, call ? call->name : "?");
            if (one->has_external_correlation_id)
                printf(", external id %" PRIu64, one->external_correlation_id);
            printf("\n");
        }
    }
    return status;
}

int main(int argc, char **argv) {
    gputrace_stream *first = NULL, *second = NULL;
    struct call *calls = NULL;
    size_t count = 0;
    gputrace_status status;
    if (argc != 2) {
        fprintf(stderr, "usage: %s CAPTURE.gtcap\n", argv[0]);
        return 2;
    }
    /* A dispatch can come before the call that launched it. */
    status = pass(argv[1], &first, &calls, &count, 0);
    if (status == GPUTRACE_STATUS_END) {
        if (count) qsort(calls, count, sizeof *calls, by_id);
        status = pass(argv[1], &second, &calls, &count, 1);
    }
    if (status != GPUTRACE_STATUS_END) fprintf(stderr, "%s\n", gputrace_error_text());
    gputrace_stream_free(first);
    gputrace_stream_free(second);
    free(calls);
    return status == GPUTRACE_STATUS_END ? EXIT_SUCCESS : EXIT_FAILURE;
}
