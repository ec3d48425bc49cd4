//! Configuration of the software GPU: agents, clocks, durations, and faults. It is a TOML file in
//! which everything is optional.
//!
//! ```toml
//! seed = 7                                    # of every drawn duration
//!
//! [[agent]]                                   # one table per GPU; without any: one gfx906
//! gfx = "gfx90a"
//! clock = { frequency_hz = 100_000_000, drift_ppb = 20_000 }
//!
//! [[kernel]]                                  # first match wins
//! name = "vadd*"
//! duration = { fixed_ns = 25_000 }
//!
//! [[fault]]
//! kind = "never_ends"
//! kernel = "spin*"
//! nth = 3
//! ```

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::GpuClock;
use crate::fault::FaultRule;
use crate::timing::{Duration, KernelRule};

/// Environment variable: path of the TOML file.
pub const CONFIG_VARIABLE: &str = "SOFTGPU_CONFIG";
/// Environment variable: directory for the ground-truth logs. Without it nothing is logged.
pub const LOG_VARIABLE: &str = "SOFTGPU_LOG";

/// The whole configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Seed of all random draws. A draw depends only on the seed and on the packet's place, never
    /// on timing.
    pub seed: u64,
    /// Minor version of KFD's interface (the major version is 1). From 14 on, events have ages,
    /// with which the event thread of ROCr 6.4 spins (72 000 waits instead of 70). From 15 on, ROCr
    /// offers virtual memory.
    pub kfd_minor: u32,
    /// The GPUs, in the order of their KFD nodes.
    pub agent: Vec<AgentConfig>,
    /// Behaviour of queues.
    pub queue: QueueConfig,
    /// Duration of copies.
    pub copy: CopyConfig,
    /// Duration of kernels that no rule matches.
    pub default_duration: Duration,
    /// Rules for the durations of kernels.
    pub kernel: Vec<KernelRule>,
    /// Injected faults.
    pub fault: Vec<FaultRule>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            kfd_minor: 13,
            agent: vec![AgentConfig::default()],
            queue: QueueConfig::default(),
            copy: CopyConfig::default(),
            default_duration: Duration::Fixed { fixed_ns: 2_000 },
            kernel: Vec::new(),
            fault: Vec::new(),
        }
    }
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Instruction set, such as `gfx906`. It decides which code objects load.
    pub gfx: String,
    /// PCI device id reported to the runtime.
    pub device_id: u32,
    /// Name shown to users.
    pub name: String,
    /// Memory, in MiB.
    pub vram_mib: u64,
    /// Whether the host can map all of the memory (a large BAR).
    pub large_bar: bool,
    /// Agents with the same hive number, unless it is 0, can access each other's memory (through
    /// XGMI).
    pub hive: u64,
    /// Maximum number of concurrent kernels over all queues.
    pub concurrent_kernels: u32,
    /// The clock.
    pub clock: GpuClock,
    /// How much faster the clock shown by stamps and kernels runs than the clock read by the
    /// driver, in parts per billion: a fault. The log contains what the driver reads.
    pub stamps_fast_ppb: i64,
    /// What the status register shows.
    pub register: Register,
}

/// Behaviour of the register that says whether an agent is at work (`GRBM_STATUS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Register {
    /// It shows whether kernels run.
    #[default]
    Follows,
    /// It is always 0, as virtual functions may show it.
    Zero,
    /// The driver does not let it be read.
    Refused,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            gfx: "gfx906".to_owned(),
            device_id: 0x66a1,
            name: "Software GPU".to_owned(),
            vram_mib: 16 * 1024,
            large_bar: false,
            hive: 0,
            concurrent_kernels: 8,
            clock: GpuClock::default(),
            stamps_fast_ppb: 0,
            register: Register::default(),
        }
    }
}

/// Behaviour of queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Maximum number of concurrent packets of one queue if their barrier bits are off.
    pub concurrent_packets: usize,
    /// The read index is reported once this many packets were consumed, or when the queue is empty.
    pub read_index_step: u64,
    /// The read index is reported this long after the packet was consumed, in ns.
    pub read_index_delay_ns: u64,
    /// The read index is reported this many packets early, as if packets were taken before they may
    /// begin: a fault.
    pub read_index_ahead: u64,
    /// A complete packet at the head whose doorbell was overwritten by a lower one is taken after
    /// this time, in ns. It is long, because no GPU takes a packet before its doorbell, and a program
    /// may lose its CPU between the two.
    pub missed_doorbell_ns: u64,
    /// The longest sleep between two looks at an idle doorbell, in ns.
    pub idle_sleep_ns: u64,
    /// Whether the processor spins at the end of a kernel, so that it never sleeps past the
    /// kernel's end, and logs the actual end: a kernel takes longer if the processor was preempted.
    /// Without this, the end is begin plus duration, and the next packet may begin up to 40 us
    /// later, or much later on a busy machine.
    pub punctual: bool,
    /// Whether the processors' threads request SCHED_RR, so that spinning host threads cannot delay
    /// them.
    pub realtime: bool,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            concurrent_packets: 4,
            read_index_step: 1,
            read_index_delay_ns: 0,
            read_index_ahead: 0,
            missed_doorbell_ns: 2_000_000_000,
            idle_sleep_ns: 1_000_000,
            punctual: false,
            realtime: true,
        }
    }
}

/// Duration of copies. Data is always copied; the copy then lasts at least this long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopyConfig {
    /// Time per copy packet, ns.
    pub latency_ns: u64,
    /// Bytes per microsecond; 0 for the host's copying speed.
    pub bytes_per_us: u64,
}

impl CopyConfig {
    /// The minimum time in ns for a copy of this many bytes.
    #[must_use]
    pub fn duration_ns(&self, bytes: u64) -> u64 {
        let moving = bytes
            .saturating_mul(1_000)
            .checked_div(self.bytes_per_us)
            .unwrap_or(0);
        self.latency_ns.saturating_add(moving)
    }
}

/// Why there is no valid configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the software GPU's configuration {}: {source}; check SOFTGPU_CONFIG", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not a valid configuration.
    #[error("the software GPU's configuration {} is wrong: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The position and the reason.
        source: Box<toml::de::Error>,
    },
    /// A value is invalid.
    #[error("the software GPU's configuration is wrong: {0}")]
    Value(String),
}

impl Config {
    /// Reads TOML text; `path` is for messages.
    ///
    /// # Errors
    ///
    /// If the text is not TOML, has unknown keys, or has invalid values.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|source| ConfigError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        config.check()?;
        Ok(config)
    }

    /// Reads the file named by `SOFTGPU_CONFIG`, or uses the defaults if the variable is not set.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse), and when the file cannot be read.
    pub fn from_environment() -> Result<Self, ConfigError> {
        let Some(path) = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from) else {
            return Ok(Self::default());
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text, &path),
            Err(source) => Err(ConfigError::Read { path, source }),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let value = |text: &str| Err(ConfigError::Value(text.to_owned()));
        if self.agent.is_empty() || self.agent.len() > 16 {
            return value("there must be 1 to 16 [[agent]] tables");
        }
        for agent in &self.agent {
            if agent.target_version().is_none() {
                return value(&format!(
                    "agent.gfx = {:?} is not like gfx906, gfx90a or gfx1030",
                    agent.gfx
                ));
            }
            if agent.clock.frequency_hz == 0 || agent.concurrent_kernels == 0 || agent.vram_mib == 0
            {
                return value(
                    "agent.clock.frequency_hz, concurrent_kernels and vram_mib must not be 0",
                );
            }
        }
        if self.queue.concurrent_packets == 0 || self.queue.read_index_step == 0 {
            return value("queue.concurrent_packets and queue.read_index_step must not be 0");
        }
        Ok(())
    }
}

impl AgentConfig {
    /// KFD's `gfx_target_version`: major * 10000 + minor * 100 + stepping.
    ///
    /// The last two digits of the name are minor and stepping, the stepping in hex (gfx90a is
    /// 9.0.10).
    #[must_use]
    pub fn target_version(&self) -> Option<u32> {
        let digits = self.gfx.strip_prefix("gfx")?;
        let (rest, stepping) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
        let (major, minor) = rest.split_at_checked(rest.len().checked_sub(1)?)?;
        let major: u32 = major
            .parse()
            .ok()
            .filter(|major| (6..100).contains(major))?;
        Some(
            major * 10_000
                + minor.parse::<u32>().ok()? * 100
                + u32::from_str_radix(stepping, 16).ok()?,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("test.toml"))
    }

    #[test]
    fn nothing_is_needed() {
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn a_full_file_is_read() {
        let config = parse(
            r#"
            seed = 7
            default_duration = { uniform_ns = [1_000, 5_000] }
            [[agent]]
            gfx = "gfx90a"
            clock = { drift_ppb = 20_000, jumps = [{ at_ns = 5, ticks = -9 }] }
            [[agent]]
            gfx = "gfx1030"
            [queue]
            read_index_step = 16
            [copy]
            bytes_per_us = 10_000
            [[kernel]]
            name = "vadd*"
            min_work_items = 1024
            duration = { fixed_ns = 25_000 }
            [[fault]]
            kind = "late_completion"
            delay_ns = 1_000_000
            kernel = "vadd*"
            nth = 3
            "#,
        )
        .unwrap();
        assert_eq!(config.agent.len(), 2);
        assert_eq!(config.copy.duration_ns(1 << 20), 104_857);
        let text = toml::to_string(&config).unwrap();
        assert_eq!(parse(&text).unwrap(), config);
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("sed = 7", "unknown field `sed`"),
            ("[[agent]]\ngfx = \"sm_90\"", "agent.gfx = \"sm_90\""),
            ("agent = []", "1 to 16"),
            ("[queue]\nread_index_step = 0", "read_index_step"),
            ("[[fault]]\nkind = \"explodes\"", "explodes"),
        ];
        for (text, expected) in cases {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn target_versions_follow_the_name() {
        let version = |gfx: &str| {
            AgentConfig {
                gfx: gfx.to_owned(),
                ..AgentConfig::default()
            }
            .target_version()
        };
        assert_eq!(version("gfx906"), Some(90_006));
        assert_eq!(version("gfx90a"), Some(90_010));
        assert_eq!(version("gfx942"), Some(90_402));
        assert_eq!(version("gfx1030"), Some(100_300));
        assert_eq!(version("gfx1201"), Some(120_001));
        for wrong in ["", "gfx", "gfx9", "906", "gfxxyz", "gfx90é"] {
            assert_eq!(version(wrong), None, "{wrong}");
        }
    }
}
