//! Measures the cost of calls and dispatches on the stand-ins: prints figures, tests nothing.
//!
//! `cargo run -p gputrace-simrocm --bin simrocm-bench`

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Parser;
use gputrace_simrocm::queue::{Library, Queue};
use gputrace_simrocm::{HipSoname, stage};
use gputrace_simrocm_core::code_object::{KernelSpec, write};

/// Measure calls and empty dispatches on the stand-ins for ROCm's libraries.
#[derive(Parser)]
struct Arguments {
    /// Directory with the staged libraries; without it they are staged in a temporary one.
    #[arg(long)]
    lib: Option<std::path::PathBuf>,
    /// Dispatches of each measurement.
    #[arg(long, default_value_t = 1_000_000)]
    dispatches: u64,
    /// Do it in this process, whose environment is prepared.
    #[arg(long, hide = true)]
    prepared: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.prepared {
        return measure(&arguments);
    }
    let directory = std::env::temp_dir().join(format!("simrocm-bench-{}", std::process::id()));
    let outcome = prepare(&arguments, &directory);
    std::fs::remove_dir_all(&directory).context("the temporary directory cannot be removed")?;
    outcome
}

/// Starts this program again, with kernels that take no time and with a ground-truth log, as in
/// tests.
fn prepare(arguments: &Arguments, directory: &Path) -> anyhow::Result<()> {
    let truth = directory.join("truth");
    std::fs::create_dir_all(&truth)?;
    let lib = match &arguments.lib {
        Some(lib) => lib.clone(),
        None => stage(directory, HipSoname::Six)?,
    };
    let config = directory.join("softgpu.toml");
    std::fs::write(&config, "default_duration = { fixed_ns = 0 }\n")?;
    let status = Command::new(std::env::current_exe()?)
        .arg("--prepared")
        .arg("--dispatches")
        .arg(arguments.dispatches.to_string())
        .env("LD_LIBRARY_PATH", lib)
        .env("SOFTGPU_CONFIG", config)
        .env("SOFTGPU_LOG", truth)
        .status()?;
    if !status.success() {
        bail!("the measuring process failed: {status}");
    }
    Ok(())
}

/// CPU time of the whole process on all CPUs, ns.
fn cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn say_call(name: &str, mut call: impl FnMut()) {
    const CALLS: u32 = 5_000_000;
    let begin = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    println!(
        "{name:28} {:6.1} ns per call",
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    );
}

#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn say_dispatches(through: &str, count: u64, mut dispatch: impl FnMut(), end: impl FnOnce()) {
    let (begin, cpu) = (Instant::now(), cpu_ns());
    for _ in 0..count {
        dispatch();
    }
    end();
    let (wall, cpu) = (begin.elapsed().as_secs_f64(), (cpu_ns() - cpu) / 1e9);
    println!(
        "{through:28} {:9.0} empty dispatches/s, {:9.0} per second of one core (both threads and the log)",
        count as f64 / wall,
        count as f64 / cpu
    );
}

fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let hsa = Library::open(c"libhsa-runtime64.so.1")?;
    let hip = Library::open(c"libamdhip64.so.6")?;
    let get_last: extern "C" fn() -> u32 = hip.function("hipGetLastError")?;
    let set_device: extern "C" fn(i32) -> u32 = hip.function("hipSetDevice")?;
    say_call("hipGetLastError", || {
        get_last();
    });
    say_call("hipSetDevice", || {
        set_device(0);
    });

    let image = write(
        "gfx906",
        &[KernelSpec {
            name: "empty".to_owned(),
            arguments: Vec::new(),
        }],
    );
    // The reader of a bundle's table reads a whole page.
    let image: Vec<u8> = image.into_iter().chain([0; 4096]).collect();
    let load: extern "C" fn(&mut u64, *const u8) -> u32 = hip.function("hipModuleLoadData")?;
    let get_function: extern "C" fn(&mut u64, u64, *const i8) -> u32 =
        hip.function("hipModuleGetFunction")?;
    let create: extern "C" fn(&mut u64) -> u32 = hip.function("hipStreamCreate")?;
    let synchronize: extern "C" fn(u64) -> u32 = hip.function("hipStreamSynchronize")?;
    type Launch = extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, usize, usize) -> u32;
    let launch: Launch = hip.function("hipModuleLaunchKernel")?;
    let (mut module, mut function, mut stream) = (0, 0, 0);
    let outcomes = [
        load(&mut module, image.as_ptr()),
        get_function(&mut function, module, c"empty".as_ptr()),
        create(&mut stream),
        launch(function, 1, 1, 1, 64, 1, 1, 0, stream, 0, 0),
        synchronize(stream),
    ];
    if outcomes != [0; 5] {
        bail!("HIP does not work: {outcomes:?}");
    }
    let count = arguments.dispatches;
    let dispatch = || {
        launch(function, 1, 1, 1, 64, 1, 1, 0, stream, 0, 0);
    };
    say_dispatches("hipModuleLaunchKernel", count, dispatch, || {
        synchronize(stream);
    });
    through_hsa(&hsa, count)
}

/// Dispatches kernels like a program that uses HSA directly.
fn through_hsa(hsa: &Library, count: u64) -> anyhow::Result<()> {
    let mut queue = Queue::create(hsa)?;
    let mut left = count;
    say_dispatches(
        "hsa queue",
        count,
        || {
            left -= 1;
            queue.dispatch(left == 0);
            if left == 0 {
                queue.wait();
            }
        },
        || (),
    );
    Ok(())
}
