/* Uses the library wrongly, and expects errors instead of crashes: `misuse CAPTURE`. */
#include <gputrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, gputrace_error_text());     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static unsigned calls;

static int on_event(const gputrace_event *event, void *user) {
    gputrace_stream *stream = user;
    const gputrace_event *other;
    /* Its own stream is in use. */
    EXPECT(gputrace_stream_next(stream, &other) == GPUTRACE_STATUS_BUSY);
    EXPECT(other == NULL);
    EXPECT(gputrace_stream_each(stream, on_event, user) == GPUTRACE_STATUS_BUSY);
    EXPECT(gputrace_stream_finish(stream, NULL) == GPUTRACE_STATUS_BUSY);
    EXPECT(gputrace_stream_line(stream) == NULL);
    EXPECT(event->size == sizeof *event);
    if (event->kind == GPUTRACE_EVENT_KIND_CALL) {
        const gputrace_argument *arguments;
        size_t count, again;
        EXPECT(event->call->size == sizeof *event->call);
        EXPECT(gputrace_stream_arguments(stream, &arguments, &count) == GPUTRACE_STATUS_OK);
        EXPECT(count > 0 && arguments[0].name[0] != 0);
        EXPECT(gputrace_stream_arguments(stream, &arguments, &again) == GPUTRACE_STATUS_OK);
        EXPECT(again == count);
        calls++;
    }
    return calls == 5;
}

int main(int argc, char **argv) {
    gputrace_stream *stream = NULL;
    gputrace_options *options = gputrace_options_new();
    const gputrace_event *event;
    const char *nothing[] = {NULL};
    EXPECT(argc == 2);
    EXPECT(strcmp(gputrace_version(), "") != 0);
    EXPECT(strcmp(gputrace_error_text(), "") == 0);
    EXPECT(strcmp(gputrace_domain_name(0), "") != 0);
    EXPECT(gputrace_domain_name(1000000) == NULL && gputrace_domain_name(255) == NULL);

    EXPECT(gputrace_options_attach(NULL, 1) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_options_add(options, NULL) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_options_add(options, "\xff\xfe") == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(strstr(gputrace_error_text(), "UTF-8"));
    EXPECT(gputrace_options_domain(options, "NO_SUCH_API") == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(strstr(gputrace_error_text(), "NO_SUCH_API"));
    EXPECT(gputrace_options_launch(options, NULL) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_options_launch(options, nothing) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_options_environment(options, "A", NULL) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_options_keep(options, "/tmp", NULL) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_session_start(options, NULL) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_options_recorder(options, "/nowhere/gputrace") == GPUTRACE_STATUS_OK);
    EXPECT(gputrace_session_start(options, &stream) == GPUTRACE_STATUS_START && !stream);
    EXPECT(strstr(gputrace_error_text(), "/nowhere/gputrace"));
    EXPECT(gputrace_options_recorder(options, "/bin/false") == GPUTRACE_STATUS_OK);
    EXPECT(gputrace_session_start(options, &stream) == GPUTRACE_STATUS_RECORDER && !stream);
    gputrace_options_free(options);
    gputrace_options_free(NULL);

    EXPECT(gputrace_capture_open(NULL, &stream) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_capture_open("/nowhere", &stream) == GPUTRACE_STATUS_CAPTURE && !stream);
    EXPECT(gputrace_capture_open(argv[0], &stream) == GPUTRACE_STATUS_CAPTURE && !stream);
    EXPECT(gputrace_stream_next(NULL, &event) == GPUTRACE_STATUS_ARGUMENT && !event);
    EXPECT(gputrace_capture_open(argv[1], &stream) == GPUTRACE_STATUS_OK);
    EXPECT(gputrace_stream_next(stream, NULL) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_stream_each(stream, NULL, NULL) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_stream_stop(stream) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_stream_finish(stream, NULL) == GPUTRACE_STATUS_ARGUMENT);
    EXPECT(gputrace_stream_each(stream, on_event, stream) == GPUTRACE_STATUS_OK);
    EXPECT(calls == 5);
    /* The rest can be taken in the other way. */
    while (gputrace_stream_next(stream, &event) == GPUTRACE_STATUS_OK)
        calls += event->kind == GPUTRACE_EVENT_KIND_CALL;
    EXPECT(calls == 20);
    EXPECT(gputrace_stream_next(stream, &event) == GPUTRACE_STATUS_END && !event);
    gputrace_stream_free(stream);
    gputrace_stream_free(NULL);
    return 0;
}
