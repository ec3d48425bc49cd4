//! Finds the call by which GPU work is known.
//!
//! HIP's functions submit work by calling HSA's. Where calls of both are recorded, the innermost
//! call is one of HSA's, of which programs know nothing. Tools that join work with calls, such as
//! TraceLens, look for the call of HIP around it.

use std::collections::VecDeque;

use foldhash::{HashMap, HashSet};
use gputrace_abi::{domain::Domain, gpu::role};
use gputrace_catalog::gpu_role;

use crate::model::{
    event::{Call, Event, FunctionInfo},
    gpu::Origin,
};

/// Maximum number of calls of HSA that are remembered. Work is emitted soon after its call.
const MOST: usize = 1 << 16;

/// Maximum number of such calls inside each other. In a damaged capture, they may go in circles.
const LEVELS: usize = 8;

/// Remembers which calls made the latest calls of HSA that submit work.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// Ids of HSA's functions that submit work.
    functions: HashSet<u32>,
    /// Their calls, with the call around each, by correlation id; and these ids in order.
    around: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

impl Callers {
    /// Learns of a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        let work = [Domain::KernelDispatch, Domain::MemoryCopy];
        if gpu_role(&info.function.name, &work) != role::NONE {
            self.functions.insert(info.function.id);
        }
    }

    /// Learns from an event before it is emitted or hidden. Work gets its caller.
    pub(crate) fn seen(&mut self, event: &mut Event) {
        match event {
            Event::Call(call) => self.call(call),
            Event::Dispatch(dispatch) => self.work(&mut dispatch.origin),
            Event::Copy(copy) => self.work(&mut copy.origin),
            _ => {}
        }
    }

    fn call(&mut self, call: &Call) {
        if call.parent == 0 || !self.functions.contains(&call.function) {
            return;
        }
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.around.remove(&oldest);
        }
        self.around.insert(call.correlation, call.parent);
        self.order.push_back(call.correlation);
    }

    fn work(&self, origin: &mut Origin) {
        origin.caller = origin.innermost;
        for _ in 0..LEVELS {
            let Some(around) = self.around.get(&origin.caller) else {
                break;
            };
            origin.caller = *around;
        }
        if origin.deferred && origin.caller == origin.innermost {
            origin.caller = origin.outermost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::gpu::Copy, synthetic};

    const HIP: u32 = 1;
    const STORE: u32 = 2;
    const WAIT: u32 = 3;

    /// Callers that know these calls: correlation id, the call around, function.
    fn callers(calls: &[(u64, u64, u32)]) -> Callers {
        let mut callers = Callers::default();
        for (id, name, domain) in [
            (HIP, "hipModuleLaunchKernel", Domain::HipRuntime),
            (STORE, "hsa_signal_store_screlease", Domain::HsaCore),
            (WAIT, "hsa_signal_wait_scacquire", Domain::HsaCore),
        ] {
            callers.function(&FunctionInfo::named(id, name, Some(domain)));
        }
        for (correlation, parent, function) in calls {
            let mut call = synthetic::call(*correlation, 10, 20);
            (call.parent, call.function) = (*parent, *function);
            callers.seen(&mut Event::Call(call));
        }
        callers
    }

    fn caller(callers: &mut Callers, innermost: u64, deferred: bool) -> u64 {
        let origin = Origin {
            innermost,
            outermost: 5,
            deferred,
            ..Origin::default()
        };
        let mut event = Event::Copy(Box::new(Copy {
            origin,
            ..Copy::default()
        }));
        callers.seen(&mut event);
        match event {
            Event::Copy(copy) => copy.origin.caller,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn work_is_known_by_the_call_around_those_of_hsa() {
        // A call's id may be larger than those of calls inside it.
        let mut callers = callers(&[(3, 9, STORE), (9, 5, HIP), (4, 3, STORE), (6, 5, WAIT)]);
        assert_eq!(caller(&mut callers, 3, false), 9);
        assert_eq!(caller(&mut callers, 4, false), 9);
        assert_eq!(caller(&mut callers, 9, false), 9);
        assert_eq!(caller(&mut callers, 6, false), 6, "it submits no work");
        assert_eq!(caller(&mut callers, 77, false), 77, "not recorded");
        assert_eq!(caller(&mut callers, 0, false), 0);
    }

    #[test]
    fn deferred_work_is_known_by_the_call_that_asked_for_it() {
        let mut callers = callers(&[(3, 0, STORE)]);
        assert_eq!(caller(&mut callers, 3, true), 5);
        assert_eq!(caller(&mut callers, 3, false), 3, "called by the program");
    }

    #[test]
    fn calls_in_circles_and_very_many_calls_end() {
        let mut looping = callers(&[(3, 4, STORE), (4, 3, STORE)]);
        assert_eq!(caller(&mut looping, 3, false), 3);
        let many: Vec<_> = (0..MOST as u64 + 1)
            .map(|number| (number + 10, 5, STORE))
            .collect();
        let mut callers = callers(&many);
        assert_eq!(callers.around.len(), MOST);
        assert_eq!(caller(&mut callers, 10, false), 10, "forgotten");
        assert_eq!(caller(&mut callers, 11, false), 5);
    }
}
