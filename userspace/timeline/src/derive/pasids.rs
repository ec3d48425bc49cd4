//! Maps GPU address-space numbers (PASIDs) to processes, to find the process that caused an
//! interrupt.
//!
//! The recorder writes down what KFD's and DRM's files say about processes. PASIDs that come and go
//! in between are reported by the driver's own tracepoints: `amdgpu_pasid_allocated` fires in the
//! process that opens the device.

use std::collections::HashMap;

use gputrace_capture::gpu::Pasid;

use crate::model::observation::{FieldValue, Observation, Whose};

/// Process ids by PASID.
#[derive(Debug, Default)]
pub(crate) struct Pasids(HashMap<u64, u32>);

impl Pasids {
    /// Notes that the recorder found `pasid` to belong to a process.
    pub(crate) fn learn(&mut self, pasid: Pasid) {
        self.0.insert(pasid.pasid, pasid.pid);
    }

    /// Learns from a tracepoint's record, or sets the process that the record concerns.
    pub(crate) fn join(&mut self, one: &mut Observation) {
        let Some(FieldValue::Number(pasid)) = one.get("pasid") else {
            return;
        };
        let pasid = *pasid;
        match one.name.as_ref() {
            // 0 means no PASID.
            _ if pasid == 0 => {}
            "amdgpu_pasid_allocated" if one.whose.pid != 0 => {
                self.0.insert(pasid, one.whose.pid);
            }
            "amdgpu_pasid_freed" => {
                self.0.remove(&pasid);
            }
            "amdgpu_iv" => {
                // The thread that was interrupted has nothing to do with the event.
                one.whose = Whose {
                    pid: self.0.get(&pasid).copied().unwrap_or(0),
                    tid: 0,
                    gpu_id: one.whose.gpu_id,
                };
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::domain::Domain;

    use super::*;
    use crate::model::observation::ObservedField;

    fn record(name: &'static str, pasid: u64, pid: u32) -> Observation {
        Observation {
            domain: Domain::Tracepoint.id(),
            name: name.into(),
            whose: Whose {
                pid,
                tid: pid,
                gpu_id: 0,
            },
            begin: 1,
            end: 1,
            is_open: false,
            fields: vec![ObservedField {
                name: "pasid".into(),
                value: FieldValue::Number(pasid),
            }],
        }
    }

    fn whose(pasids: &mut Pasids, pasid: u64) -> (u32, u32) {
        let mut interrupt = record("amdgpu_iv", pasid, 0);
        pasids.join(&mut interrupt);
        (interrupt.whose.pid, interrupt.whose.tid)
    }

    #[test]
    fn interrupts_belong_to_the_process_that_has_the_number_now() {
        let mut pasids = Pasids::default();
        assert_eq!(whose(&mut pasids, 0x8001), (0, 0));
        pasids.learn(Pasid {
            pid: 47,
            pasid: 0x8001,
        });
        assert_eq!(whose(&mut pasids, 0x8001), (47, 0));
        pasids.join(&mut record("amdgpu_pasid_freed", 0x8001, 9));
        assert_eq!(whose(&mut pasids, 0x8001), (0, 0));
        pasids.join(&mut record("amdgpu_pasid_allocated", 0x8001, 48));
        assert_eq!(whose(&mut pasids, 0x8001), (48, 0));
        // 0 is used for the kernel's own work.
        pasids.join(&mut record("amdgpu_pasid_allocated", 0, 48));
        assert_eq!(whose(&mut pasids, 0), (0, 0));
    }
}
