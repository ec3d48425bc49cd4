//! Perfetto exporter: timeline events become a `.pftrace` file that <https://ui.perfetto.dev> and
//! trace processor open.
//!
//! ```text
//!  Event ──> TraceWriter ──┬─ Call ─────────────> slices     (nesting: where it is drawn)
//!                          ├─ Dispatch, Copy ───> gpu        (rows, lanes, counters)
//!                          ├─ Process, Thread ──> tracks     (uuids, descriptors)
//!                          ├─ Lifetime ─────────> lifetimes
//!                          └─ the rest ─────────> report, clock
//!                                                    │
//!                 sequence (flags, interned strings) ┴─> wire (protobuf bytes) ──> file
//! ```
//!
//! A trace is a flat series of `TracePacket`s, so it is written as events come: memory does not
//! grow with the number of calls or dispatches. It is encoded by hand (module `wire`), several
//! times faster than from generated structures. A test reads it with Perfetto's own code.
//!
//! # What is in the trace
//!
//! * **Clock**: all times are `CLOCK_BOOTTIME`, in ns. Clock snapshots relate it to the other
//!   clocks.
//! * **Tracks**: a process track for each process, a thread track for each thread (module `tracks`
//!   describes the uuids), tracks for each GPU's queues and copies, and two tracks of gputrace's
//!   own.
//! * **API calls**: slices named like the function, in category `hip_api` or `hsa_api`.
//!   Annotations, in queries `EXTRACT_ARG(arg_set_id, 'debug.NAME')`:
//!
//!   | name | value |
//!   |---|---|
//!   | `args.PARAMETER` | each argument, in a dictionary: a parameter may be called `kind` or `tid` too |
//!   | `retval` | what was returned, e.g. `hipErrorNoDevice (100)` |
//!   | `unfinished` | why there is no return; only on calls that did not return |
//!   | `probe_cost` | `single_stepped` where the duration includes the kernel's stepping of an instruction |
//!   | `kind` | domain, e.g. `HIP_RUNTIME_API` |
//!   | `corr_id` | correlation id, unique in the trace |
//!   | `ancestor_id` | correlation id of the enclosing call, or 0 |
//!   | `tid` | thread id |
//!   | `begin_ns`, `end_ns` | exact times; only where the slice had to be moved (module `nesting`) |
//! * **GPU work**: slices named like the kernel, in category `kernel_dispatch`, or like the
//!   direction of the copy, in category `memory_copy`. Only spans of known duration are on the GPU's
//!   own tracks. The others are marks without length on tracks that say so, in categories with the
//!   suffix `_untimed`; work that had not ended is drawn there up to the end of the recording and
//!   marked like an unfinished call. Annotations, besides `kind`, `pid` and `tid`:
//!
//!   | name | value |
//!   |---|---|
//!   | `corr_id` | the innermost call that is not HSA's, so that work joins calls of HIP, even where calls of HSA are recorded too |
//!   | `innermost_corr_id` | the innermost call; only where that is another one |
//!   | `outermost_corr_id` | the outermost call |
//!   | `quality` | `exact`, `sampled`, `bounded` or `submitted` |
//!   | `submit_ns` | when it was submitted, `CLOCK_BOOTTIME` |
//!   | `begin_ns`, `end_ns`, `delta_ns` | exact numbers of what is drawn; not on marks |
//!   | `duration` | only on marks: that it is not known |
//!   | `begin_window`, `end_window` | `earliest_ns` and `latest_ns` between which it is proven to lie, and `uncertainty_ns` |
//!   | `mangled_name`, `demangled_name`, `kernel_id`, `kernel_object`, `code_object_id` | the kernel |
//!   | `runtime_kernel` | what a kernel of HIP's own does: `copy`, `fill` or `other` |
//!   | `deferred` | a thread of HIP's submitted it later; the call was found by the order of its stream |
//!   | `VGPR_Count`, `Accum_VGPR_Count`, `SGPR_Count` | its registers |
//!   | `grid`, `workgroup`, `grid_size`, `workgroup_size` | work-items by dimension, and in all |
//!   | `thread_count`, `registers_per_thread`, `shared_mem_static`, `shared_mem_dynamic` | the same and more, by the names that Perfetto has for launches; bytes |
//!   | `LDS_Block_Size`, `Scratch_Size`, `static_group_segment_size` | bytes of memory: what the dispatch has of both, and what the kernel declares |
//!   | `agent`, `queue`, `hsa_queue_id`, `packet_index`, `dispatch_id`, `stream` (the handle), `stream_ID` (its number, as rocprofv3's) | where it ran |
//!   | `kernarg`, `completion_signal`, `barrier`, `read_later` | the packet |
//!   | `src_agent`, `dst_agent`, `src_address`, `dst_address`, `copy_bytes`, `engine_mask`, `mb_per_s` | a copy |
//!   | `direction_by` | what a copy's direction (`operation`) follows from: the `memory`, or only the `agents` that its call names, or only the `call` of HIP |
//!
//!   With [`PerfettoOptions::native_events`] the work is there a second time as Perfetto's own GPU
//!   events, which newer viewers show in a section for GPUs.
//! * **Flows** lead to GPU work from the outermost and the innermost call that submitted it. The
//!   flow id is the call's correlation id, so several kernels of one call (a graph) form a chain.
//! * **Counters** per agent: kernels and bytes of copies that were submitted and had not ended, as
//!   far as their ends are known.
//! * **Unfinished calls** end at the time up to which they were seen open, and are marked by an
//!   instant of category `unfinished`.
//! * **Lifetimes** (start, exec, rename, exit): instants of category `lifetime` on the thread's
//!   track.
//! * **Loss ledger**: an instant on the track `gputrace: loss ledger`, with every row and the
//!   totals as annotations; notices of the recorder are on the same track.
//! * **Recording**: instants on the track `gputrace: recording` say how, where and by which command
//!   it was made, which libraries were probed, and why it ended.
//!
//! ```no_run
//! # fn main() -> Result<(), gputrace_export::ExportError> {
//! # let events: Vec<gputrace_timeline::event::Event> = Vec::new();
//! use gputrace_export::{Exporter, OutputDir};
//! use gputrace_perfetto::PerfettoExporter;
//!
//! let directory = OutputDir::open("traces".as_ref(), None)?;
//! let mut exporter = Box::new(PerfettoExporter::new(&directory, "app_results.pftrace")?);
//! for event in &events {
//!     exporter.event(event)?;
//! }
//! let files = exporter.finish()?;
//! # Ok(()) }
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod clock;
mod exporter;
mod gpu;
mod intern;
mod lifetimes;
mod nesting;
mod observations;
mod packets;
mod report;
mod sampled;
mod sequence;
mod slices;
mod tracks;
mod wire;

pub use exporter::{PerfettoExporter, TraceWriter};
pub use gpu::{GpuGrouping, PerfettoOptions};
#[cfg(test)]
mod tests;
