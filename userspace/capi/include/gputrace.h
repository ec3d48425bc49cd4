/*
 * gputrace: follow AMD GPU work of other processes, and read captures.
 *
 * Made from userspace/capi by `UPDATE_EXPECT=1 cargo test -p gputrace-capi --test header`.
 */

#ifndef GPUTRACE_H
#define GPUTRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// What a function reports.
typedef enum {
    /// Success.
    GPUTRACE_STATUS_OK = 0,
    /// There are no more events.
    GPUTRACE_STATUS_END = 1,
    /// An argument is null, or no text in UTF-8, or makes no sense for this object.
    GPUTRACE_STATUS_ARGUMENT = 2,
    /// The recorder could not be started.
    GPUTRACE_STATUS_START = 3,
    /// The recorder is of another version.
    GPUTRACE_STATUS_VERSION = 4,
    /// The options contradict each other, or have impossible values.
    GPUTRACE_STATUS_USAGE = 5,
    /// There is no such process or program.
    GPUTRACE_STATUS_NO_TARGET = 6,
    /// The process has no ROCm libraries.
    GPUTRACE_STATUS_NO_ROCM = 7,
    /// The process or library cannot be traced.
    GPUTRACE_STATUS_UNTRACEABLE = 8,
    /// No permission.
    GPUTRACE_STATUS_NO_PERMISSION = 9,
    /// The kernel lacks a feature.
    GPUTRACE_STATUS_KERNEL = 10,
    /// A file cannot be written, or exists.
    GPUTRACE_STATUS_OUTPUT = 11,
    /// A library file cannot be used.
    GPUTRACE_STATUS_LIBRARY = 12,
    /// The recorder failed otherwise, or was killed.
    GPUTRACE_STATUS_RECORDER = 13,
    /// The capture cannot be read.
    GPUTRACE_STATUS_CAPTURE = 14,
    /// Another thread uses the stream, or one of its own callbacks does.
    GPUTRACE_STATUS_BUSY = 15,
    /// A defect of the library.
    GPUTRACE_STATUS_INTERNAL = 16,
} gputrace_status;

/// What an event is. The member of the same name of `gputrace_event` is then not null.
typedef enum {
    /// A call, or a marker, that has ended. Calls of one thread come in order of time.
    GPUTRACE_EVENT_KIND_CALL = 1,
    /// A kernel dispatch about whose times nothing more can become known.
    GPUTRACE_EVENT_KIND_DISPATCH = 2,
    /// A copy about whose times nothing more can become known.
    GPUTRACE_EVENT_KIND_COPY = 3,
    /// A process, when it is first known or changes.
    GPUTRACE_EVENT_KIND_PROCESS = 4,
    /// A thread, when it is first known or renamed.
    GPUTRACE_EVENT_KIND_THREAD = 5,
    /// A remark of the recorder; `text`.
    GPUTRACE_EVENT_KIND_NOTICE = 6,
    /// The account of what was seen, recorded and lost. It is the last event but one.
    GPUTRACE_EVENT_KIND_ACCOUNT = 7,
    /// The orderly end of the recording. The last event.
    GPUTRACE_EVENT_KIND_END = 8,
} gputrace_event_kind;

/// How a call ended.
typedef enum {
    /// It returned.
    GPUTRACE_CALL_END_RETURNED = 0,
    /// It was open when its thread ended.
    GPUTRACE_CALL_END_THREAD_EXITED = 1,
    /// It was open when its process executed another program.
    GPUTRACE_CALL_END_EXECUTED = 2,
    /// It was open when the recording stopped.
    GPUTRACE_CALL_END_RECORDING_STOPPED = 3,
    /// Its end was not observed; `end_ns` is `begin_ns`.
    GPUTRACE_CALL_END_NOT_SEEN = 4,
} gputrace_call_end;

/// How well the times of work are known.
typedef enum {
    /// Only the time of submission is known.
    GPUTRACE_QUALITY_SUBMITTED = 0,
    /// Begin and end lie within their windows.
    GPUTRACE_QUALITY_BOUNDED = 1,
    /// Begin and end are estimates within their windows.
    GPUTRACE_QUALITY_SAMPLED = 2,
    /// The GPU wrote them.
    GPUTRACE_QUALITY_EXACT = 3,
} gputrace_quality;

/// What to record. Used by one thread at a time.
typedef struct gputrace_options gputrace_options;

/// A range that was begun, and will end.
typedef struct gputrace_range gputrace_range;

/// The events of a recording or of a capture.
///
/// One thread at a time takes events; a second one gets `GPUTRACE_STATUS_BUSY`, and so does a
/// callback of the stream itself. `gputrace_stream_stop`, `gputrace_stream_pause`,
/// `gputrace_stream_resume` and `gputrace_stream_line` can be called from any thread at any time, and
/// from callbacks.
typedef struct gputrace_stream gputrace_stream;

/// An API call or a marker.
typedef struct {
    /// Size of this structure, bytes.
    size_t size;
    /// Number of the domain; see `gputrace_domain_name`.
    uint32_t domain;
    /// Process id on the host.
    uint32_t pid;
    /// Thread id on the host.
    uint32_t tid;
    /// CPU on which it began.
    uint32_t cpu;
    /// Name of the function, or text of the marker. Valid as long as the stream.
    const char *name;
    /// Whether it is a marker.
    bool is_marker;
    /// Whether `external_correlation_id` is set.
    bool has_external_correlation_id;
    /// How it ended.
    gputrace_call_end ended;
    /// ns, `CLOCK_BOOTTIME`.
    uint64_t begin_ns;
    /// ns, `CLOCK_BOOTTIME`, not before `begin_ns`.
    uint64_t end_ns;
    /// Unique in the recording, never 0.
    uint64_t correlation_id;
    /// That of the call around it on the same thread; 0 if none.
    uint64_t parent_correlation_id;
    /// The id that the program had set for its work.
    uint64_t external_correlation_id;
    /// The content of the return register, if it returned.
    uint64_t result;
    /// Number of the first stream that it was given; 0 for a null stream or none.
    uint32_t stream_id;
} gputrace_call;

/// When work ran.
typedef struct {
    /// How well it is known.
    gputrace_quality quality;
    /// Whether `begin_ns` and `end_ns` are known. If not, they are 0, and the windows are all that
    /// is known.
    bool is_known;
    /// When it was submitted; ns, `CLOCK_BOOTTIME`, like all that follow.
    uint64_t submitted_ns;
    /// Its begin.
    uint64_t begin_ns;
    /// Its end.
    uint64_t end_ns;
    /// It did not begin before this.
    uint64_t begin_earliest_ns;
    /// It began no later than this; `UINT64_MAX` if that is not known.
    uint64_t begin_latest_ns;
    /// It did not end before this.
    uint64_t end_earliest_ns;
    /// It ended no later than this; `UINT64_MAX` if that is not known.
    uint64_t end_latest_ns;
} gputrace_time;

/// A kernel dispatch.
typedef struct {
    /// Size of this structure, bytes.
    size_t size;
    /// Number in the recording, from 1.
    uint64_t id;
    /// Process id on the host.
    uint32_t pid;
    /// Thread that submitted it; 0 if unknown.
    uint32_t tid;
    /// Name of the kernel, demangled; a description if it is not known. Valid until the stream's
    /// next event is taken.
    const char *kernel_name;
    /// Correlation id of the call by which programs know it: the innermost that is not HSA's; 0 if
    /// none is recorded.
    uint64_t correlation_id;
    /// The id that the program had set for its work.
    uint64_t external_correlation_id;
    /// Whether `external_correlation_id` is set.
    bool has_external_correlation_id;
    /// Whether `node_id` is known.
    bool has_node_id;
    /// KFD topology node of the agent.
    uint32_t node_id;
    /// `hsa_queue_t::id`.
    uint64_t queue_id;
    /// Index of its packet in the queue.
    uint64_t packet_index;
    /// Number of its stream; 0 for a null or unknown stream.
    uint32_t stream_id;
    /// Work-items.
    uint32_t grid_size[3];
    /// Work-items per workgroup.
    uint32_t workgroup_size[3];
    /// When it ran.
    gputrace_time time;
} gputrace_dispatch;

/// A copy.
typedef struct {
    /// Size of this structure, bytes.
    size_t size;
    /// Number in the recording, from 1.
    uint64_t id;
    /// Process id on the host.
    uint32_t pid;
    /// Thread that submitted it; 0 if unknown.
    uint32_t tid;
    /// Its direction as rocprofiler spells it, e.g. `MEMORY_COPY_HOST_TO_DEVICE`. It never changes.
    const char *direction;
    /// As for dispatches.
    uint64_t correlation_id;
    /// The id that the program had set for its work.
    uint64_t external_correlation_id;
    /// Whether `external_correlation_id` is set.
    bool has_external_correlation_id;
    /// Number of its stream; 0 for a null or unknown stream.
    uint32_t stream_id;
    /// Bytes.
    uint64_t bytes;
    /// Source address.
    uint64_t source;
    /// Destination address.
    uint64_t destination;
    /// When it ran.
    gputrace_time time;
} gputrace_copy;

/// A process.
typedef struct {
    /// Size of this structure, bytes.
    size_t size;
    /// Process id on the host.
    uint32_t pid;
    /// That of its parent; 0 if unknown.
    uint32_t parent;
    /// Its name. Valid until the stream's next event is taken.
    const char *name;
    /// Its command line, words separated by spaces. Valid as `name`.
    const char *command;
} gputrace_process;

/// A thread.
typedef struct {
    /// Size of this structure, bytes.
    size_t size;
    /// Its process.
    uint32_t pid;
    /// Thread id on the host.
    uint32_t tid;
    /// Its name. Valid until the stream's next event is taken.
    const char *name;
} gputrace_thread;

/// What was seen, and what became of it: `seen = written + unfinished + dropped`.
typedef struct {
    /// Size of this structure, bytes.
    size_t size;
    /// Whether it is the final account of a recording that ended in order.
    bool is_complete;
    /// Calls, kernels, copies and other records that were seen.
    uint64_t seen;
    /// Recorded whole.
    uint64_t written;
    /// Recorded without an end.
    uint64_t unfinished;
    /// Lost.
    uint64_t dropped;
    /// Processes whose first calls may be missing from all of these numbers.
    uint64_t late_processes;
    /// Child processes that were not traced because there was no room.
    uint64_t untraced_processes;
} gputrace_account;

/// An event. Everything it points to is valid until the next event of its stream is taken, unless
/// said otherwise.
typedef struct {
    /// Size of this structure, bytes.
    size_t size;
    /// Which of the following is set.
    gputrace_event_kind kind;
    /// A call or marker.
    const gputrace_call *call;
    /// A kernel dispatch.
    const gputrace_dispatch *dispatch;
    /// A copy.
    const gputrace_copy *copy;
    /// A process.
    const gputrace_process *process;
    /// A thread.
    const gputrace_thread *thread;
    /// An account.
    const gputrace_account *account;
    /// The text of a notice.
    const char *text;
} gputrace_event;

/// Takes an event. `user` is what was given with it. Anything but 0 ends the taking of events.
///
/// It may call any function for other streams, and for its own stream those that may be called at
/// any time. It must not throw: the process is aborted then. While it blocks, further events wait
/// (up to 256 MiB of a recording; more is lost and counted).
typedef int (*gputrace_callback)(const gputrace_event *event, void *user);

/// An argument of a call.
typedef struct {
    /// Its name. Valid until the stream's next event is taken.
    const char *name;
    /// Its value as text: numbers, names of enumerators, strings. Valid as `name`.
    const char *value;
} gputrace_argument;

/// How a recording ended.
typedef struct {
    /// Size of this structure, bytes.
    size_t size;
    /// Whether a program was launched and has ended.
    bool has_program;
    /// Its status as `waitpid(2)` gives it: use `WIFEXITED` and so on.
    int program_status;
    /// Path of the capture, if it was kept; else null. Valid until the stream is freed.
    const char *capture;
} gputrace_finished;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/// The reason of the calling thread's last failure, with what to do; empty if nothing has failed. It
/// is valid until the thread's next failure.
const char *gputrace_error_text(void);

/// The version of this library, e.g. `0.1.0`. It never changes while the program runs.
const char *gputrace_version(void);

/// New options. Without further calls they mean: every process of the node, and the domains that
/// `gputrace` records by default. Free them with `gputrace_options_free`.
gputrace_options *gputrace_options_new(void);

/// Frees options. Null is allowed.
///
/// # Safety
///
/// `options` is null or came from `gputrace_options_new`, and is not used any more.
void gputrace_options_free(gputrace_options *options);

/// Traces a running process, by its id on the host. Can be called for several.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them.
gputrace_status gputrace_options_attach(gputrace_options *options, uint32_t pid);

/// Starts a program and traces it from its first call. `command` is the program with its arguments,
/// and ends with null. It reads nothing from its standard input.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `command` is an array of
/// texts that ends with null.
gputrace_status gputrace_options_launch(gputrace_options *options, const char *const *command);

/// Records this domain, by its name in rocprofiler's style, e.g. `HIP_RUNTIME_API` or
/// `KERNEL_DISPATCH`. Can be called for several.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `name` is a text.
gputrace_status gputrace_options_domain(gputrace_options *options, const char *name);

/// Any option of `gputrace`, as one argument: `--stacks=launch`, `--all`.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `option` is a text.
gputrace_status gputrace_options_add(gputrace_options *options, const char *option);

/// Sets a variable in the environment of the recorder and of a launched program.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `name` and `value` are
/// texts.
gputrace_status gputrace_options_environment(gputrace_options *options,
                                             const char *name,
                                             const char *value);

/// Keeps the capture as the file `name.gtcap` in `directory`.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `directory` and `name` are
/// texts.
gputrace_status gputrace_options_keep(gputrace_options *options,
                                      const char *directory,
                                      const char *name);

/// The program `gputrace` to be the recorder; by default the one that is found in `PATH`.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `program` is a text.
gputrace_status gputrace_options_recorder(gputrace_options *options, const char *program);

/// Starts a recording. On success, `*stream` is its stream of events; free it with
/// `gputrace_stream_free`. The options can be used again.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread changes them. `stream` can be
/// written.
gputrace_status gputrace_session_start(const gputrace_options *options, gputrace_stream **stream);

/// The name of a domain by the number in events, e.g. `HIP_RUNTIME_API`; null if there is none. It
/// never changes.
const char *gputrace_domain_name(uint32_t number);

/// Opens a capture (`.gtcap`). On success, `*stream` is its stream of events; free it with
/// `gputrace_stream_free`. No root is needed.
///
/// # Safety
///
/// `path` is a text; `place` can be written.
gputrace_status gputrace_capture_open(const char *path, gputrace_stream **place);

/// Takes the next event, and waits for it if the recording goes on. `GPUTRACE_STATUS_END`: there are
/// no more. `*event` is valid until the next event is taken or the stream is freed.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; `event` can be written.
gputrace_status gputrace_stream_next(gputrace_stream *handle,
                                     const gputrace_event **event);

/// Calls `callback` with each event until there are no more (`GPUTRACE_STATUS_END`) or it returns
/// anything but 0 (`GPUTRACE_STATUS_OK`). It is called by this thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile, not by the callback either.
gputrace_status gputrace_stream_each(gputrace_stream *handle,
                                     gputrace_callback callback,
                                     void *user);

/// The arguments of the stream's current event, in order of declaration. `*arguments` is null if it
/// is not a call, or has none. They are made when they are asked for. For the thread that takes
/// events, also from its callback. Valid until the next event is taken.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; the other pointers can be written.
gputrace_status gputrace_stream_arguments(gputrace_stream *handle,
                                          const gputrace_argument **arguments,
                                          size_t *count);

/// Ends the recording. What was recorded until then is still delivered; then the events end. A
/// launched program goes on, untraced. From any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
gputrace_status gputrace_stream_stop(gputrace_stream *handle);

/// Records nothing that begins from now on, until `gputrace_stream_resume`. From any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
gputrace_status gputrace_stream_pause(gputrace_stream *handle);

/// Records again what begins from now on. From any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
gputrace_status gputrace_stream_resume(gputrace_stream *handle);

/// Marks this moment in the recording, with a text: a marker of this process and thread, in the
/// events and in every output. From any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; `label` is a text.
gputrace_status gputrace_stream_mark(gputrace_stream *handle, const char *label);

/// Begins a range in the recording, with a text; `*range` is what `gputrace_range_end` needs. From
/// any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; `label` is a text; `range` can be written.
gputrace_status gputrace_range_begin(gputrace_stream *handle,
                                     const char *label,
                                     gputrace_range **range);

/// Ends a range and frees it. Its stream may have been freed already. Null is allowed.
///
/// # Safety
///
/// `range` is null or came from `gputrace_range_begin`, and is not used any more.
void gputrace_range_end(gputrace_range *range);

/// Waits until every call that had ended before is delivered, at most `limit_ms` milliseconds. Call
/// it from another thread than the one that takes events. `GPUTRACE_STATUS_END`: the recording has
/// ended. `GPUTRACE_STATUS_BUSY`: the limit was reached.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
gputrace_status gputrace_stream_flush(gputrace_stream *handle, uint64_t limit_ms);

/// Takes the next line that the recorder has written for people; null if there is none. It is valid
/// until the next line is taken. From any thread, but only one at a time.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
const char *gputrace_stream_line(gputrace_stream *handle);

/// Ends the recording if it has not ended, and waits until nothing of it is left but its files.
/// Events that were not taken are given up. `finished` may be null.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; `finished` can be written or is null.
gputrace_status gputrace_stream_finish(gputrace_stream *handle, gputrace_finished *finished);

/// Frees a stream. A recording that goes on is ended first, and nothing of it is left but its files.
/// Null is allowed.
///
/// # Safety
///
/// `handle` is null or a stream that nobody uses any more.
void gputrace_stream_free(gputrace_stream *handle);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUTRACE_H */
