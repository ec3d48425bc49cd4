//! Communicators that a program makes, asks about, uses and ends.

use gputrace_capture::meta::{ArgSlot, Parameter, ValueKind};
use gputrace_catalog::signature;

use super::*;
use crate::{derive::args, synthetic::call};

const PID: u32 = 7;

/// Functions that a test has called, and the calls so far: each lasts 10 ns and begins 20 ns
/// after the previous one.
#[derive(Default)]
struct Program {
    communicators: Communicators,
    functions: Vec<FunctionInfo>,
    time: u64,
    pid: u32,
}

impl Program {
    fn new() -> Self {
        Self {
            pid: PID,
            ..Self::default()
        }
    }

    fn make(&mut self, name: &str, args: [u64; 6], stored: Option<(u8, u64)>, status: u64) -> Call {
        if !self
            .functions
            .iter()
            .any(|known| known.function.name == name)
        {
            let number = self.functions.len() as u32;
            let mut info = FunctionInfo::named(number, name, Some(Domain::Rccl));
            info.function.parameters = Some(signature(name).unwrap().parameters());
            self.communicators.function(&info);
            self.functions.push(info);
        }
        let function = self
            .functions
            .iter()
            .position(|known| known.function.name == name);
        self.time += 20;
        let mut call = call(self.time, self.time, self.time + 10);
        call.function = function.unwrap() as u32;
        call.domain = Domain::Rccl.id();
        (call.pid, call.tid) = (self.pid, self.pid);
        call.args = args;
        call.stack_readable = true;
        call.how = CallEnd::Returned(status);
        if let Some((word, value)) = stored {
            call.pointees.push(Pointee {
                word,
                at_return: true,
                data: PointeeData::Bytes(value.to_le_bytes().to_vec()),
            });
        }
        call
    }

    fn call(&mut self, name: &str, args: [u64; 6], stored: Option<(u8, u64)>) {
        let mut call = self.make(name, args, stored, 0);
        self.communicators.call(&mut call);
    }

    /// Rank and size that a collective shows.
    fn shown(&self, call: &Call) -> Vec<(String, String)> {
        let info = &self.functions[call.function as usize];
        let shown = args::decoded(info, call)
            .skip_while(|(name, _)| *name != "bytes")
            .skip(1);
        shown
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .collect()
    }

    /// Rank and size shown by an all-reduce, as `rank/size`.
    fn of(&mut self, communicator: u64) -> String {
        let mut call = self.make("ncclAllReduce", [1, 2, 64, 7, 0, communicator], None, 0);
        self.communicators.call(&mut call);
        let shown = self.shown(&call);
        let of = |name: &str| {
            let mut found = shown.iter().filter(|(known, _)| known == name);
            found.next().map_or("?", |(_, value)| value).to_owned()
        };
        format!("{}/{}", of("rank"), of("nranks"))
    }

    fn init(&mut self, communicator: u64, rank: u64, ranks: u64) {
        // The upper halves of registers are garbage.
        let args = [0x5000, 0xffff_0000_0000_0000 | ranks, rank, 0, 0, 0];
        self.call("ncclCommInitRank", args, Some((0, communicator)));
    }

    fn destroy(&mut self, communicator: u64) {
        self.call("ncclCommDestroy", [communicator, 0, 0, 0, 0, 0], None);
    }
}

#[test]
fn collectives_know_the_rank_and_size_of_their_communicator() {
    let mut program = Program::new();
    assert_eq!(program.of(0xa0), "?/?");
    program.init(0xa0, 1, 4);
    program.init(0xb0, 3, 8);
    assert_eq!(
        (program.of(0xa0), program.of(0xb0)),
        ("1/4".into(), "3/8".into())
    );
    // Its communicator is on the stack.
    let mut reduce = program.make("ncclReduce", [1, 2, 64, 7, 0, 2], None, 0);
    reduce.stack[0] = 0xb0;
    program.communicators.call(&mut reduce);
    let shown = [
        ("rank".to_owned(), "3".to_owned()),
        ("nranks".to_owned(), "8".to_owned()),
    ];
    assert_eq!(program.shown(&reduce), shown);
    reduce.pointees.clear();
    reduce.stack_readable = false;
    program.communicators.call(&mut reduce);
    assert_eq!(program.shown(&reduce), []);
    // A function that is no collective gets nothing.
    let mut op = program.make("ncclRedOpCreatePreMulSum", [1, 2, 7, 0, 0xa0, 0], None, 0);
    program.communicators.call(&mut op);
    assert_eq!(op.pointees, []);
    // Another process has its own.
    program.pid = 8;
    assert_eq!(program.of(0xa0), "?/?");
    program.pid = PID;
    program.communicators.ended(8);
    assert_eq!(program.of(0xa0), "1/4");
    program.communicators.ended(PID);
    assert_eq!(program.of(0xa0), "?/?");
}

#[test]
fn what_was_made_before_is_known_when_it_is_asked_for() {
    let mut program = Program::new();
    program.call("ncclCommUserRank", [0xa0, 0x5000, 0, 0, 0, 0], Some((1, 2)));
    assert_eq!(program.of(0xa0), "2/?");
    program.call("ncclCommCount", [0xa0, 0x5000, 0, 0, 0, 0], Some((1, 16)));
    assert_eq!(program.of(0xa0), "2/16");
    // Each of several has its index as its rank; what a split creates is unknown.
    let mut all = program.make(
        "ncclCommInitAll",
        [0x5000, 4, 0, 0, 0, 0],
        Some((0, 0xb0)),
        0,
    );
    if let PointeeData::Bytes(bytes) = &mut all.pointees[0].data {
        bytes.extend([0xb1_u64, 0, 0xb3].map(u64::to_le_bytes).as_flattened());
    }
    program.communicators.call(&mut all);
    let ranks = [0xb0, 0xb1, 0, 0xb3].map(|one| program.of(one));
    assert_eq!(ranks, ["0/4", "1/4", "?/?", "3/4"]);
    program.call("ncclCommSplit", [0xa0, 0, 0, 0x5000, 0, 0], Some((3, 0xb0)));
    assert_eq!(program.of(0xb0), "?/?");
    program.call("ncclCommUserRank", [0xb0, 0x5000, 0, 0, 0, 0], Some((1, 1)));
    assert_eq!(program.of(0xb0), "1/?");
    // A failed call tells nothing; one that continues in the background does.
    let mut failed = program.make(
        "ncclCommInitRank",
        [0x5000, 4, 1, 0, 0, 0],
        Some((0, 0xc0)),
        3,
    );
    program.communicators.call(&mut failed);
    assert_eq!(program.of(0xc0), "?/?");
    let config = "ncclCommInitRankConfig";
    let mut later = program.make(config, [0x5000, 4, 1, 0, 0, 0], Some((0, 0xc0)), 7);
    program.communicators.call(&mut later);
    assert_eq!(program.of(0xc0), "1/4");
}

#[test]
fn an_address_that_is_used_again_is_another_communicator() {
    let mut program = Program::new();
    for end in ["ncclCommDestroy", "ncclCommAbort", "ncclCommFinalize"] {
        program.init(0xa0, 1, 4);
        assert_eq!(program.of(0xa0), "1/4");
        program.call(end, [0xa0, 0, 0, 0, 0, 0], None);
        assert_eq!(program.of(0xa0), "?/?");
    }
    // Created anew, unseen.
    program.call("ncclCommCount", [0xa0, 0x5000, 0, 0, 0, 0], Some((1, 2)));
    assert_eq!(program.of(0xa0), "?/2");

    // With two threads, the destruction of the old one and a query of it come after the new
    // one's creation.
    let destroy = program.make("ncclCommDestroy", [0xa0, 0, 0, 0, 0, 0], None, 0);
    let rank = program.make(
        "ncclCommUserRank",
        [0xa0, 0x5000, 0, 0, 0, 0],
        Some((1, 9)),
        0,
    );
    let early = program.make("ncclAllReduce", [1, 2, 64, 7, 0, 0xa0], None, 0);
    program.init(0xa0, 2, 3);
    for mut late in [destroy, rank, early] {
        let before = late.pointees.len();
        program.communicators.call(&mut late);
        assert_eq!(late.pointees.len(), before);
    }
    assert_eq!(program.of(0xa0), "2/3");
}

#[test]
fn what_stands_there_within_a_group_may_be_left_of_another() {
    let mut program = Program::new();
    let group = |program: &mut Program, what| program.call(what, [0; 6], None);
    group(&mut program, "ncclGroupStart");
    program.init(0xa0, 0, 2);
    program.init(0xb0, 1, 2);
    group(&mut program, "ncclGroupEnd");
    assert_eq!(
        (program.of(0xa0), program.of(0xb0)),
        ("0/2".into(), "1/2".into())
    );
    program.destroy(0xa0);
    program.destroy(0xb0);
    group(&mut program, "ncclGroupStart");
    program.init(0xa0, 0, 2);
    group(&mut program, "ncclGroupEnd");
    assert_eq!(program.of(0xa0), "?/?");
    program.destroy(0xa0);
    program.init(0xa0, 0, 2);
    assert_eq!(program.of(0xa0), "0/2");
}

#[test]
fn newer_functions_have_their_own_names_for_the_rank() {
    let parameter = |(name, c_type, word): (&str, &str, u8)| Parameter {
        name: name.to_owned(),
        c_type: c_type.to_owned(),
        kind: ValueKind::Word,
        at: ArgSlot::Register(word),
        stored: None,
        ..Parameter::default()
    };
    let parameters = [
        ("newcomm", "ncclComm_t *", 0),
        ("nranks", "int", 1),
        ("myrank", "int", 2),
    ];
    let mut info = FunctionInfo::named(1, "pncclCommInitRankScalable", Some(Domain::Rccl));
    assert_eq!(role(&info), None);
    info.function.parameters = Some(parameters.into_iter().map(parameter).collect());
    let made = Role::Make {
        stored: 0,
        rank: MadeRank::Word(2),
        ranks: Some(1),
    };
    assert_eq!(role(&info), Some(made));
}

#[test]
fn memory_is_bounded() {
    let mut program = Program::new();
    let most = MAX_COMMUNICATORS as u64;
    for address in 1..=most + 10 {
        program.init(address, 1, 2);
    }
    assert_eq!(
        program.communicators.processes[&PID].communicators.len(),
        MAX_COMMUNICATORS
    );
    assert_eq!(
        (program.of(most), program.of(most + 1)),
        ("1/2".into(), "?/?".into())
    );
    program.destroy(1);
    program.init(most + 1, 1, 2);
    assert_eq!(program.of(most + 1), "1/2");
}
