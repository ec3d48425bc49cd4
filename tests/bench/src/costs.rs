//! Compares what gputrace says tracing cost with what it really cost: the CPU time of a program
//! that calls a function, with and without gputrace.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use gputrace_export::costs::Costs;
use gputrace_timeline::Timeline;

use crate::{
    Options,
    library::{EMULATED, Library, OPTIMIZED, OWN, STEPPED, Site},
    machine::cpu_time,
    report::{Table, median},
};

/// A program that calls a function and prints how much CPU time the calls took, ns.
#[derive(Debug, clap::Args)]
pub(crate) struct Called {
    library: PathBuf,
    function: String,
    calls: u64,
}

impl Called {
    /// Makes the calls and prints the time.
    ///
    /// # Errors
    ///
    /// When it is not such a library.
    pub(crate) fn run(&self) -> Result<()> {
        let site = Site::load(&self.library, &self.function)?;
        let begin = cpu_time();
        site.call(self.calls);
        #[expect(clippy::print_stdout, reason = "the figure")]
        {
            println!("{}", (cpu_time() - begin).as_nanos());
        }
        Ok(())
    }
}

/// A function, and how often it is called.
struct Case {
    function: &'static str,
    what: &'static str,
    calls: u64,
}

const CASES: [Case; 4] = [
    Case {
        function: OPTIMIZED,
        what: "five-byte `nop`; return",
        calls: 50_000,
    },
    Case {
        function: EMULATED,
        what: "`push`; return",
        calls: 50_000,
    },
    Case {
        function: STEPPED,
        what: "`endbr64; sub`; return",
        calls: 5000,
    },
    Case {
        function: OWN,
        what: "`push`; probed `ret`",
        calls: 5000,
    },
];

/// Prints both costs for each kind of probe.
///
/// # Errors
///
/// When a program fails, or gputrace counted other calls than were made.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let library = Library::build()?;
    let turns = if options.quick { 3 } else { 11 };
    let mut table = Table::new(
        "What gputrace says that tracing cost",
        &[
            "entry; end",
            "really, ns/call",
            "said, ns/call",
            "said / really",
        ],
    );
    for case in CASES {
        let (mut real, mut said, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..turns {
            let without = case.time(Command::new(std::env::current_exe()?), &library)?;
            let with = case.time(gputrace(options, &case, &library)?, &library)?;
            let really = (with - without) / case.calls as f64;
            let says = case.said(&library.directory().join("costs.gtcap"))?;
            real.push(really);
            said.push(says);
            ratios.push(says / really);
        }
        table.row(&[
            &case.what,
            &format!("{:.0}", median(&real)),
            &format!("{:.0}", median(&said)),
            &format!("{:.2}", median(&ratios)),
        ]);
    }
    table.note(format!(
        "Medians of {turns} turns. Really: CPU time of a program that calls the function in a loop, less that without \
         gputrace. Said: the bill in the same recording, by the number of calls. Aim: a ratio of 0.8 to 1.2."
    ));
    table.print()
}

/// A command that records this program.
fn gputrace(options: &Options, case: &Case, library: &Library) -> Result<Command> {
    let mut command = Command::new(&options.gputrace);
    command.args(["--force", "-f", "csv", "-o", "costs", "-d"]);
    command.arg(library.directory());
    if case.function == OWN {
        command.args(["--functions", "^gputrace_bench_own$"]);
        command.args(["--max-call-rate", "0", "--max-probe-time", "0"]);
    }
    command.arg("--").arg(std::env::current_exe()?);
    Ok(command)
}

impl Case {
    /// CPU time of the calls, ns.
    fn time(&self, mut command: Command, library: &Library) -> Result<f64> {
        command.arg("called").arg(library.path()).arg(self.function);
        let output = command.arg(self.calls.to_string()).output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }

    /// The bill of a recording for one call, ns.
    fn said(&self, capture: &Path) -> Result<f64> {
        let mut costs = Costs::default();
        for event in Timeline::open(capture)? {
            costs.event(&event?);
        }
        let bill = costs.bill();
        ensure!(bill.prices.measured, "the prices were not measured");
        let mut functions = bill.functions.iter();
        let function = functions
            .find(|one| one.name == self.function)
            .with_context(|| format!("no call of {} was counted", self.function))?;
        ensure!(
            function.hits == self.calls,
            "{} calls were made, {} are on the bill",
            self.calls,
            function.hits
        );
        Ok(function.cost_ns as f64 / self.calls as f64)
    }
}
