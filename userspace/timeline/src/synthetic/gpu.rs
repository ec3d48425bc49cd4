//! Records and metadata about a GPU, for [`super::Synthetic::record`] and
//! [`super::Synthetic::meta`].

use gputrace_abi::{
    domain::Domain,
    gpu::{
        COMPLETION_SIZE, COPY_SIZE, Completion, Copy, PACKET_RECORD_SIZE, Packet, QUEUE_STATE_SIZE,
        QueueState, completion_reason, role,
    },
    record::{RecordHeader, kind},
};
use gputrace_capture::{
    counter::{Counter, CounterValues, GroupRead},
    gpu::{Agent, AgentHandle, AgentKind, CodeObject, GpuClock, Kernel, Queue},
    ledger::{Ledger, LedgerRow},
    meta::{Epoch, Recording},
};
use zerocopy::FromZeros;

use super::Synthetic;

const MS: u64 = 1_000_000;

/// Process id of all records here.
pub const PID: u32 = 100;
/// Topology node, and also KFD's id, of the GPU of [`agents`].
pub const GPU_NODE: u32 = 1;
/// `hsa_agent_t` of the CPU in [`handles`].
pub const CPU_HANDLE: u64 = 0xc000;
/// `hsa_agent_t` of the GPU in [`handles`].
pub const GPU_HANDLE: u64 = 0xd000;
/// `kernel_object` of the kernel in [`code_object`], used by [`packet`].
pub const KERNEL_OBJECT: u64 = 0x7f00_0000;

fn header(size: usize, kind: u8, domain: Domain) -> RecordHeader {
    RecordHeader {
        size: size as u16,
        kind,
        domain: domain.id(),
        cpu: 0,
    }
}

/// A dispatch of [`KERNEL_OBJECT`] with the barrier bit, for tests to modify: packet `index` of the
/// queue at 0x1000, whose doorbell rang at `time`. It has a completion signal unless `signal` is 0.
#[must_use]
pub fn packet(index: u64, time: u64, signal: u64) -> Packet {
    let mut packet = Packet::new_zeroed();
    packet.header = header(PACKET_RECORD_SIZE, kind::PACKET, Domain::KernelDispatch);
    (packet.pid, packet.tid) = (PID, PID);
    (packet.queue, packet.ring, packet.ring_packets) = (0x1000, 0x10_0000, 1024);
    (packet.index, packet.time) = (index, time);
    packet.packet = [
        2 | 1 << 8 | 1 << 16 | 64 << 32 | 1 << 48,
        1 | 640 << 32,
        1 | 1 << 32,
        16 | 32 << 32,
        KERNEL_OBJECT,
        0x5000,
        0,
        signal,
    ];
    packet
}

/// A reading of `signal` with its stamps (begin and end) in ticks.
#[must_use]
pub fn completion(
    signal: u64,
    time: u64,
    reason: u32,
    value: i64,
    ticks: (u64, u64),
) -> Completion {
    let mut reading = Completion::new_zeroed();
    reading.header = header(COMPLETION_SIZE, kind::COMPLETION, Domain::Completion);
    (reading.pid, reading.reason, reading.time) = (PID, reason, time);
    (reading.signal, reading.value) = (signal, value);
    (reading.start, reading.end) = ticks;
    reading
}

/// A copy of 4096 bytes from the CPU to the GPU.
#[must_use]
pub fn copy(time: u64, signal: u64) -> Copy {
    let mut copy = Copy::new_zeroed();
    copy.header = header(COPY_SIZE, kind::COPY, Domain::MemoryCopy);
    (copy.pid, copy.tid, copy.time) = (PID, PID, time);
    (copy.destination, copy.source, copy.bytes) = (0xd_0000, 0xc_0000, 4096);
    (copy.destination_agent, copy.source_agent) = (GPU_HANDLE, CPU_HANDLE);
    (copy.role, copy.signal) = (role::COPY.into(), signal);
    copy
}

/// A look at the queue at 0x1000; `reason` is one of [`gputrace_abi::gpu::queue_reason`].
#[must_use]
pub fn queue_state(time: u64, reason: u32, read_index: u64, write_index: u64) -> QueueState {
    let mut state = QueueState::new_zeroed();
    state.header = header(QUEUE_STATE_SIZE, kind::QUEUE, Domain::HipRuntime);
    (state.pid, state.reason, state.time) = (PID, reason, time);
    (state.queue, state.read_index, state.write_index) = (0x1000, read_index, write_index);
    state
}

/// A CPU of node 0 and a GPU of node [`GPU_NODE`].
#[must_use]
pub fn agents() -> [Agent; 2] {
    let agent = |node_id, kind, name: &str| Agent {
        node_id,
        gpu_id: node_id,
        kind,
        name: name.to_owned(),
        ..Agent::default()
    };
    [
        agent(0, AgentKind::Cpu, "cpu"),
        agent(GPU_NODE, AgentKind::Gpu, "gfx90a"),
    ]
}

/// The queue of [`packet`] and [`queue_state`], on the GPU.
#[must_use]
pub fn queue() -> Queue {
    Queue {
        pid: PID,
        address: 0x1000,
        node_id: Some(GPU_NODE),
        ..Queue::default()
    }
}

/// The agents that the handles of [`copy`] refer to.
#[must_use]
pub fn handles() -> [AgentHandle; 2] {
    [(CPU_HANDLE, 0), (GPU_HANDLE, GPU_NODE)].map(|(handle, node_id)| AgentHandle {
        pid: PID,
        handle,
        node_id,
    })
}

/// A sample of the GPU's clock that is accurate to 100 ns.
#[must_use]
pub fn clock(tick: u64, boottime: u64) -> GpuClock {
    GpuClock {
        gpu_id: GPU_NODE,
        tick,
        boottime,
        uncertainty: 100,
        ..GpuClock::default()
    }
}

/// A code object with the kernel `void scale<float>(float*, int)` at [`KERNEL_OBJECT`].
#[must_use]
pub fn code_object(time: u64) -> CodeObject {
    CodeObject {
        pid: PID,
        time,
        uri: "file:///tmp/scale.co".to_owned(),
        kernels: vec![Kernel {
            object: KERNEL_OBJECT,
            name: "_Z5scaleIfEvPT_i".to_owned(),
            group_size: 32,
            private_size: 16,
            ..Kernel::default()
        }],
        ..CodeObject::default()
    }
}

/// A capture in which counters were read while kernels ran. Times are ms after boot:
///
/// * a kernel from 11 to 52, during which power (100 W, from 40 on 130 W) and energy (1000 J, then
///   1100, 1400, 1600) were read at 20, 30, 40 and 50, and the process's occupancy (64) at 25;
/// * one from 53 to 55 during which nothing was read;
/// * one from 56 to 64 during which power (90 W) and energy were read once;
/// * one of which only the submission is known.
///
/// The other GPU's power was read at 20.
#[must_use]
pub fn counted() -> Synthetic {
    let domains = [Domain::KernelDispatch, Domain::Counter];
    let mut capture = Synthetic::new(&Recording {
        domains: domains.map(|domain| domain.name().to_owned()).to_vec(),
        ..Recording::default()
    });
    for agent in agents() {
        capture.meta(agent);
    }
    for index in 0..10 {
        capture.meta(clock(index * 10_000_000, index * 100 * MS));
    }
    capture.meta(queue());
    capture.meta(code_object(0));
    let counters = [
        ("power1_average", "W", false, 0, GPU_NODE, 0),
        ("energy", "J", true, 0, GPU_NODE, 0),
        ("cu_occupancy", "", false, PID, GPU_NODE, 1),
        ("power1_average", "W", false, 0, GPU_NODE + 1, 2),
    ];
    for ((name, unit, cumulative, pid, node, group), number) in counters.into_iter().zip(0..) {
        capture.meta(Counter {
            number,
            name: name.to_owned(),
            unit: unit.to_owned(),
            cumulative,
            pid,
            gpu_id: node,
            node_id: Some(node),
            group: Some(group),
        });
    }
    /// Time, group, and the changed values by counter.
    type At<'a> = (u64, u32, &'a [(u32, f64)]);
    let readings: [At<'_>; 9] = [
        (10, 0, &[(0, 80.0), (1, 900.0)]),
        (20, 0, &[(0, 100.0), (1, 1000.0)]),
        (20, 2, &[(3, 7.0)]),
        (25, 1, &[(2, 64.0)]),
        (30, 0, &[(1, 1100.0)]),
        (40, 0, &[(0, 130.0), (1, 1400.0)]),
        (50, 0, &[(1, 1600.0)]),
        (60, 0, &[(0, 90.0), (1, 1700.0)]),
        (70, 0, &[]),
    ];
    for (at, group, values) in readings {
        let read = GroupRead {
            group,
            before: MS / 2,
            after: MS / 2,
        };
        capture.meta(CounterValues {
            time: at * MS,
            values: values.to_vec(),
            read: Some(read),
            gone: Vec::new(),
        });
    }
    for (index, times) in [Some((11, 52)), Some((53, 55)), Some((56, 64)), None]
        .into_iter()
        .enumerate()
    {
        let signal = 0x9000 + 0x80 * index as u64;
        capture.record(&packet(index as u64, 9 * MS, signal));
        if let Some((begin, end)) = times {
            let ticks = (begin * MS / 10, end * MS / 10);
            capture.record(&completion(
                signal,
                70 * MS,
                completion_reason::REARM,
                0,
                ticks,
            ));
        }
    }
    for time in [100, 300, 800] {
        capture.meta(Epoch { time: time * MS });
    }
    capture
}

/// Counts a record in the account as seen and written.
pub fn count(ledger: &mut Ledger, header: &RecordHeader) {
    let rows = &mut ledger.rows;
    let key = (header.domain, header.cpu);
    let row = rows.iter().position(|row| (row.domain, row.cpu) == key);
    let row = row.unwrap_or_else(|| {
        rows.push(LedgerRow {
            domain: header.domain,
            cpu: header.cpu,
            dropped: vec![0; 6],
            ..LedgerRow::default()
        });
        rows.len() - 1
    });
    rows[row].seen += 1;
    rows[row].written += 1;
    rows.sort_by_key(|row| (row.domain, row.cpu));
}
