//! Copies done by copy engines.

use std::collections::VecDeque;

use gputrace_abi::gpu::{self, packet_flags, role};
use gputrace_capture::gpu::AgentKind;

use crate::{
    derive::work::{Work, evidence::Evidence, knowledge::Knowledge, signal::User},
    model::{
        event::Event,
        gpu::{Copy, Direction, Origin},
    },
};

/// A copy about which more may still become known.
#[derive(Debug)]
pub(crate) struct OpenCopy {
    copy: Copy,
    /// Node of the GPU that copies. The copy's stamps are in that GPU's clock.
    pub(crate) engine_node: Option<u32>,
    pub(crate) evidence: Evidence,
}

impl OpenCopy {
    /// The thread and calls that requested the copy.
    pub(crate) fn origin(&self) -> &Origin {
        &self.copy.origin
    }

    /// Its completion signal, or 0 if it has none.
    pub(crate) fn signal(&self) -> u64 {
        self.copy.signal
    }

    /// Whether one of ROCr's threads does the copy, in which case no GPU's clock stamps it.
    pub(crate) fn is_by_cpu(&self) -> bool {
        self.copy.direction == Direction::HostToHost
    }

    /// The copy as an event, with everything known so far.
    pub(crate) fn event(self) -> Event {
        Event::Copy(Box::new(Copy {
            time: self.evidence.time(self.evidence.earliest, None),
            ..self.copy
        }))
    }
}

impl Work {
    /// Handles the submission of a copy.
    pub(super) fn copy(&mut self, record: &gpu::Copy, events: &mut VecDeque<Event>) {
        self.copies_seen += 1;
        let id = self.copies_seen;
        let route = Route::of(record, &self.knowledge);
        let copy = OpenCopy {
            copy: Copy {
                id,
                origin: Origin {
                    pid: record.pid,
                    tid: record.tid,
                    time: record.time,
                    innermost: record.innermost,
                    outermost: record.outermost,
                    stream: (record.flags & packet_flags::STREAM != 0).then_some(record.stream),
                    deferred: false,
                    range: None,
                    external: None,
                },
                direction: route.direction,
                destination_node: route.destination,
                source_node: route.source,
                destination: record.destination,
                source: record.source,
                bytes: record.bytes,
                engine: record.engine,
                signal: record.signal,
                ..Copy::default()
            },
            engine_node: route.engine,
            evidence: Evidence {
                earliest: record.time,
                ..Evidence::default()
            },
        };
        if record.signal == 0 {
            events.push_back(copy.event());
            return;
        }
        self.copies.insert(id, copy);
        self.use_signal(
            record.pid,
            record.signal,
            User::Copy(id),
            record.time,
            events,
        );
    }
}

/// Source, destination and engine of a copy.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    direction: Direction,
    destination: Option<u32>,
    source: Option<u32>,
    /// Node of the GPU that does the copy.
    engine: Option<u32>,
}

impl Route {
    /// ROCr lets the source's GPU copy if there is one, otherwise the destination's
    /// (`Runtime::CopyMemory`). A rectangle is copied by the agent that the call names, which is
    /// the source or the destination depending on the direction.
    fn of(record: &gpu::Copy, knowledge: &Knowledge) -> Self {
        let node = |handle| knowledge.node_of(record.pid, handle);
        if record.role == u32::from(role::COPY_RECT) {
            let engine = node(record.destination_agent);
            let (direction, destination, source) = match record.direction {
                0 => (Direction::HostToHost, None, None),
                1 => (Direction::HostToDevice, engine, None),
                2 => (Direction::DeviceToHost, None, engine),
                3 => (Direction::DeviceToDevice, None, None),
                _ => (Direction::Unknown, None, None),
            };
            return Self {
                direction,
                destination,
                source,
                engine,
            };
        }
        let (destination, source) = (node(record.destination_agent), node(record.source_agent));
        let kind = |node: Option<u32>| node.and_then(|node| knowledge.kind_of(node));
        let (direction, engine) = match (kind(source), kind(destination)) {
            (Some(AgentKind::Cpu), Some(AgentKind::Cpu)) => (Direction::HostToHost, None),
            (Some(AgentKind::Cpu), Some(AgentKind::Gpu)) => (Direction::HostToDevice, destination),
            (Some(AgentKind::Gpu), Some(AgentKind::Cpu)) => (Direction::DeviceToHost, source),
            (Some(AgentKind::Gpu), Some(AgentKind::Gpu)) => (Direction::DeviceToDevice, source),
            (Some(AgentKind::Gpu), None) => (Direction::Unknown, source),
            _ => (Direction::Unknown, None),
        };
        Self {
            direction,
            destination,
            source,
            engine,
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_capture::{
        Meta,
        gpu::{Agent, AgentHandle},
    };
    use zerocopy::FromZeros as _;

    use super::*;
    use crate::derive::work::knowledge::Collected;

    #[test]
    fn routes_follow_the_agents() {
        let mut collected = Collected::default();
        for (node_id, kind) in [
            (0, AgentKind::Cpu),
            (1, AgentKind::Gpu),
            (2, AgentKind::Gpu),
        ] {
            collected.take(Meta::Agent(Box::new(Agent {
                node_id,
                kind,
                gpu_id: node_id,
                ..Agent::default()
            })));
            collected.take(Meta::AgentHandle(AgentHandle {
                pid: 7,
                handle: 100 + u64::from(node_id),
                node_id,
            }));
        }
        let (knowledge, _) = collected.finish();
        let route = |source_agent, destination_agent| {
            let mut record = gpu::Copy::new_zeroed();
            (record.pid, record.role) = (7, role::COPY.into());
            (record.source_agent, record.destination_agent) = (source_agent, destination_agent);
            let route = Route::of(&record, &knowledge);
            (route.direction, route.engine)
        };
        assert_eq!(route(100, 100), (Direction::HostToHost, None));
        assert_eq!(route(100, 101), (Direction::HostToDevice, Some(1)));
        assert_eq!(route(102, 100), (Direction::DeviceToHost, Some(2)));
        assert_eq!(route(101, 102), (Direction::DeviceToDevice, Some(1)));
        assert_eq!(route(101, 999), (Direction::Unknown, Some(1)));
        assert_eq!(route(999, 101), (Direction::Unknown, None));

        let rectangle = |direction| {
            let mut record = gpu::Copy::new_zeroed();
            (record.pid, record.role, record.direction) = (7, role::COPY_RECT.into(), direction);
            record.destination_agent = 101;
            Route::of(&record, &knowledge)
        };
        let Route {
            direction,
            destination,
            source,
            engine,
        } = rectangle(1);
        assert_eq!(
            (direction, destination, source, engine),
            (Direction::HostToDevice, Some(1), None, Some(1))
        );
        assert_eq!(rectangle(2).source, Some(1));
        assert_eq!(rectangle(9).direction, Direction::Unknown);
    }
}
