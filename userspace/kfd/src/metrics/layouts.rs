//! The layouts of `gpu_metrics`, as data.
//!
//! They are taken from the kernel's `drivers/gpu/drm/amd/include/kgd_pp_interface.h`: fields in
//! order, each aligned to its own size as a C compiler does. Units are those given in the header.
//! Where it gives none and chips are known to differ (versions 2.0 to 2.3), the unit is
//! [`Unit::Chip`].

use super::Unit::{self, *};

/// A field, or an array of structures.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    /// A number, or an array of numbers.
    Number {
        name: &'static str,
        /// Size in bytes: 1, 2, 4 or 8.
        width: usize,
        count: usize,
        unit: Unit,
    },
    /// An array of structures.
    Group {
        name: &'static str,
        count: usize,
        items: &'static [Item],
    },
}

/// A version of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Format and content revision.
    pub(super) version: (u8, u8),
    /// Size of the structure, bytes.
    pub(super) size: usize,
    /// Fields after the header, in order.
    pub(super) items: &'static [&'static [Item]],
}

/// Name of fields that only fill gaps.
pub(super) const PADDING: &str = "padding";

const fn n(name: &'static str, width: usize, count: usize, unit: Unit) -> Item {
    Item::Number {
        name,
        width,
        count,
        unit,
    }
}

const fn h(name: &'static str, unit: Unit) -> Item {
    n(name, 2, 1, unit)
}

const fn w(name: &'static str, unit: Unit) -> Item {
    n(name, 4, 1, unit)
}

const fn d(name: &'static str, unit: Unit) -> Item {
    n(name, 8, 1, unit)
}

const SYSTEM_CLOCK: Item = d("system_clock_counter", Nanoseconds);
const FIRMWARE_TIME: Item = d("firmware_timestamp", TenNanoseconds);
const THROTTLE: Item = w("throttle_status", Bits);
const INDEPENDENT_THROTTLE: &[Item] = &[d("indep_throttle_status", Bits)];

// 1.0 to 1.3: discrete GPUs up to MI200 and Navi 3x.

const DISCRETE_START: &[Item] = &[
    h("temperature_edge", Celsius),
    h("temperature_hotspot", Celsius),
    h("temperature_mem", Celsius),
    h("temperature_vrgfx", Celsius),
    h("temperature_vrsoc", Celsius),
    h("temperature_vrmem", Celsius),
    h("average_gfx_activity", Percent),
    h("average_umc_activity", Percent),
    h("average_mm_activity", Percent),
    h("average_socket_power", Watt),
];
const DISCRETE_CLOCKS: &[Item] = &[
    h("average_gfxclk_frequency", MegaHertz),
    h("average_socclk_frequency", MegaHertz),
    h("average_uclk_frequency", MegaHertz),
    h("average_vclk0_frequency", MegaHertz),
    h("average_dclk0_frequency", MegaHertz),
    h("average_vclk1_frequency", MegaHertz),
    h("average_dclk1_frequency", MegaHertz),
    h("current_gfxclk", MegaHertz),
    h("current_socclk", MegaHertz),
    h("current_uclk", MegaHertz),
    h("current_vclk0", MegaHertz),
    h("current_dclk0", MegaHertz),
    h("current_vclk1", MegaHertz),
    h("current_dclk1", MegaHertz),
    THROTTLE,
    h("current_fan_speed", Rpm),
];
const DISCRETE_ENERGY: &[Item] = &[d("energy_accumulator", Chip), SYSTEM_CLOCK];
const DISCRETE_END: &[Item] = &[
    h("pcie_link_width", Lanes),
    h("pcie_link_speed", DeciGigaTransfers),
    h(PADDING, Count),
    w("gfx_activity_acc", PercentSum),
    w("mem_activity_acc", PercentSum),
    n("temperature_hbm", 2, 4, Celsius),
];
const DISCRETE_VOLTAGES: &[Item] = &[
    h("voltage_soc", MilliVolt),
    h("voltage_gfx", MilliVolt),
    h("voltage_mem", MilliVolt),
    h(PADDING, Count),
];

// 1.4 to 1.8: MI300 and later.

const SOCKET_START: &[Item] = &[
    h("temperature_hotspot", Celsius),
    h("temperature_mem", Celsius),
    h("temperature_vrsoc", Celsius),
    h("curr_socket_power", Watt),
    h("average_gfx_activity", Percent),
    h("average_umc_activity", Percent),
];
const VCN: &[Item] = &[n("vcn_activity", 2, 4, Percent)];
const JPEG: &[Item] = &[n("jpeg_activity", 2, 32, Percent)];
const MEMORY_BANDWIDTH: &[Item] = &[d("mem_max_bandwidth", GigaBytesPerSecond)];
const SOCKET_ENERGY: &[Item] = &[d("energy_accumulator", Joule65536), SYSTEM_CLOCK];
const SOCKET_THROTTLE: &[Item] = &[THROTTLE];
const RESIDENCIES: &[Item] = &[
    w("accumulation_counter", Count),
    w("prochot_residency_acc", Chip),
    w("ppt_residency_acc", Chip),
    w("socket_thm_residency_acc", Chip),
    w("vr_thm_residency_acc", Chip),
    w("hbm_thm_residency_acc", Chip),
];
const SOCKET_LINKS: &[Item] = &[
    w("gfxclk_lock_status", Bits),
    h("pcie_link_width", Lanes),
    h("pcie_link_speed", DeciGigaTransfers),
    h("xgmi_link_width", Lanes),
    h("xgmi_link_speed", GigaBits),
    w("gfx_activity_acc", PercentSum),
    w("mem_activity_acc", PercentSum),
    d("pcie_bandwidth_acc", GigaBytesPerSecondSum),
    d("pcie_bandwidth_inst", GigaBytesPerSecond),
    d("pcie_l0_to_recov_count_acc", Count),
    d("pcie_replay_count_acc", Count),
    d("pcie_replay_rover_count_acc", Count),
];
const NAKS: &[Item] = &[
    w("pcie_nak_sent_count_acc", Count),
    w("pcie_nak_rcvd_count_acc", Count),
];
const XGMI_DATA: &[Item] = &[
    n("xgmi_read_data_acc", 8, 8, KibiBytes),
    n("xgmi_write_data_acc", 8, 8, KibiBytes),
];
const XGMI_STATUS: &[Item] = &[n("xgmi_link_status", 2, 8, Count), h(PADDING, Count)];
const SOCKET_CLOCKS: &[Item] = &[
    FIRMWARE_TIME,
    n("current_gfxclk", 2, 8, MegaHertz),
    n("current_socclk", 2, 4, MegaHertz),
    n("current_vclk0", 2, 4, MegaHertz),
    n("current_dclk0", 2, 4, MegaHertz),
    h("current_uclk", MegaHertz),
];
const SOCKET_END: &[Item] = &[h(PADDING, Count)];
const PARTITION_COUNT: Item = h("num_partition", Count);
const RECOVERY: Item = w("pcie_lc_perf_other_end_recovery", Count);

const fn partitions(items: &'static [Item]) -> Item {
    Item::Group {
        name: "xcp_stats",
        count: 8,
        items,
    }
}

const PARTITIONS_1_0: &[Item] = &[
    PARTITION_COUNT,
    partitions(&[
        n("gfx_busy_inst", 4, 8, Percent),
        n("jpeg_busy", 2, 32, Percent),
        n("vcn_busy", 2, 4, Percent),
        n("gfx_busy_acc", 8, 8, PercentSum),
    ]),
    RECOVERY,
];
const PARTITIONS_1_1: &[Item] = &[
    PARTITION_COUNT,
    partitions(&[
        n("gfx_busy_inst", 4, 8, Percent),
        n("jpeg_busy", 2, 32, Percent),
        n("vcn_busy", 2, 4, Percent),
        n("gfx_busy_acc", 8, 8, PercentSum),
        n("gfx_below_host_limit_acc", 8, 8, Chip),
    ]),
    RECOVERY,
];
const PARTITIONS_1_2: &[Item] = &[
    PARTITION_COUNT,
    partitions(&[
        n("gfx_busy_inst", 4, 8, Percent),
        n("jpeg_busy", 2, 40, Percent),
        n("vcn_busy", 2, 4, Percent),
        n("gfx_busy_acc", 8, 8, PercentSum),
        n("gfx_below_host_limit_ppt_acc", 8, 8, Chip),
        n("gfx_below_host_limit_thm_acc", 8, 8, Chip),
        n("gfx_low_utilization_acc", 8, 8, Chip),
    ]),
    RECOVERY,
];

// 2.0 to 2.4 and 3.0: APUs.

const APU_CLOCK: &[Item] = &[SYSTEM_CLOCK];

/// The fields of 2.x before the clocks; only 2.4 specifies their units.
macro_rules! apu {
    ($sensors:ident, $power:ident, $averages:ident, $celsius:ident, $percent:ident, $watt:ident) => {
        const $sensors: &[Item] = &[
            h("temperature_gfx", $celsius),
            h("temperature_soc", $celsius),
            n("temperature_core", 2, 8, $celsius),
            n("temperature_l3", 2, 2, $celsius),
            h("average_gfx_activity", $percent),
            h("average_mm_activity", $percent),
        ];
        const $power: &[Item] = &[
            h("average_socket_power", $watt),
            h("average_cpu_power", $watt),
            h("average_soc_power", $watt),
            h("average_gfx_power", $watt),
            n("average_core_power", 2, 8, $watt),
        ];
        const $averages: &[Item] = &[
            h("average_temperature_gfx", $celsius),
            h("average_temperature_soc", $celsius),
            n("average_temperature_core", 2, 8, $celsius),
            n("average_temperature_l3", 2, 2, $celsius),
        ];
    };
}

apu!(APU_SENSORS, APU_POWER, APU_AVERAGES, Chip, Chip, Chip);
apu!(
    APU_SENSORS_2_4,
    APU_POWER_2_4,
    APU_AVERAGES_2_4,
    CentiCelsius,
    CentiPercent,
    MilliWatt
);

const APU_CLOCKS: &[Item] = &[
    h("average_gfxclk_frequency", MegaHertz),
    h("average_socclk_frequency", MegaHertz),
    h("average_uclk_frequency", MegaHertz),
    h("average_fclk_frequency", MegaHertz),
    h("average_vclk_frequency", MegaHertz),
    h("average_dclk_frequency", MegaHertz),
    h("current_gfxclk", MegaHertz),
    h("current_socclk", MegaHertz),
    h("current_uclk", MegaHertz),
    h("current_fclk", MegaHertz),
    h("current_vclk", MegaHertz),
    h("current_dclk", MegaHertz),
    n("current_coreclk", 2, 8, MegaHertz),
    n("current_l3clk", 2, 2, MegaHertz),
    THROTTLE,
    h("fan_pwm", Chip),
];
const APU_PADDING_2_0: &[Item] = &[h(PADDING, Count)];
const APU_PADDING: &[Item] = &[n(PADDING, 2, 3, Count)];
const APU_CURRENTS: &[Item] = &[
    h("average_cpu_voltage", MilliVolt),
    h("average_soc_voltage", MilliVolt),
    h("average_gfx_voltage", MilliVolt),
    h("average_cpu_current", MilliAmpere),
    h("average_soc_current", MilliAmpere),
    h("average_gfx_current", MilliAmpere),
];

const APU_3_0: &[Item] = &[
    h("temperature_gfx", CentiCelsius),
    h("temperature_soc", CentiCelsius),
    n("temperature_core", 2, 16, CentiCelsius),
    h("temperature_skin", CentiCelsius),
    h("average_gfx_activity", Percent),
    h("average_vcn_activity", Percent),
    n("average_ipu_activity", 2, 8, Percent),
    n("average_core_c0_activity", 2, 16, Percent),
    h("average_dram_reads", MegaBytesPerSecond),
    h("average_dram_writes", MegaBytesPerSecond),
    h("average_ipu_reads", MegaBytesPerSecond),
    h("average_ipu_writes", MegaBytesPerSecond),
    SYSTEM_CLOCK,
    w("average_socket_power", MilliWatt),
    h("average_ipu_power", MilliWatt),
    w("average_apu_power", MilliWatt),
    w("average_gfx_power", MilliWatt),
    w("average_dgpu_power", MilliWatt),
    w("average_all_core_power", MilliWatt),
    n("average_core_power", 2, 16, MilliWatt),
    h("average_sys_power", MilliWatt),
    h("stapm_power_limit", MilliWatt),
    h("current_stapm_power_limit", MilliWatt),
    h("average_gfxclk_frequency", MegaHertz),
    h("average_socclk_frequency", MegaHertz),
    h("average_vpeclk_frequency", MegaHertz),
    h("average_ipuclk_frequency", MegaHertz),
    h("average_fclk_frequency", MegaHertz),
    h("average_vclk_frequency", MegaHertz),
    h("average_uclk_frequency", MegaHertz),
    h("average_mpipu_frequency", MegaHertz),
    n("current_coreclk", 2, 16, MegaHertz),
    h("current_core_maxfreq", MegaHertz),
    h("current_gfx_maxfreq", MegaHertz),
    w("throttle_residency_prochot", Chip),
    w("throttle_residency_spl", Chip),
    w("throttle_residency_fppt", Chip),
    w("throttle_residency_sppt", Chip),
    w("throttle_residency_thm_core", Chip),
    w("throttle_residency_thm_gfx", Chip),
    w("throttle_residency_thm_soc", Chip),
    w("time_filter_alphavalue", Microseconds),
];

const fn layout(version: (u8, u8), size: usize, items: &'static [&'static [Item]]) -> Layout {
    Layout {
        version,
        size,
        items,
    }
}

/// Every version with a fixed layout.
pub(super) static LAYOUTS: &[Layout] = &[
    layout(
        (1, 0),
        80,
        &[
            APU_CLOCK,
            DISCRETE_START,
            &[w("energy_accumulator", Chip)],
            DISCRETE_CLOCKS,
            &[
                n("pcie_link_width", 1, 1, Lanes),
                n("pcie_link_speed", 1, 1, DeciGigaTransfers),
            ],
        ],
    ),
    layout(
        (1, 1),
        96,
        &[
            DISCRETE_START,
            DISCRETE_ENERGY,
            DISCRETE_CLOCKS,
            DISCRETE_END,
        ],
    ),
    layout(
        (1, 2),
        104,
        &[
            DISCRETE_START,
            DISCRETE_ENERGY,
            DISCRETE_CLOCKS,
            DISCRETE_END,
            &[FIRMWARE_TIME],
        ],
    ),
    layout(
        (1, 3),
        120,
        &[
            DISCRETE_START,
            DISCRETE_ENERGY,
            DISCRETE_CLOCKS,
            DISCRETE_END,
            &[FIRMWARE_TIME],
            DISCRETE_VOLTAGES,
            INDEPENDENT_THROTTLE,
        ],
    ),
    layout(
        (1, 4),
        288,
        &[
            SOCKET_START,
            VCN,
            SOCKET_ENERGY,
            SOCKET_THROTTLE,
            SOCKET_LINKS,
            XGMI_DATA,
            SOCKET_CLOCKS,
            SOCKET_END,
        ],
    ),
    layout(
        (1, 5),
        360,
        &[
            SOCKET_START,
            VCN,
            JPEG,
            SOCKET_ENERGY,
            SOCKET_THROTTLE,
            SOCKET_LINKS,
            NAKS,
            XGMI_DATA,
            SOCKET_CLOCKS,
            SOCKET_END,
        ],
    ),
    layout(
        (1, 6),
        1_664,
        &[
            SOCKET_START,
            SOCKET_ENERGY,
            RESIDENCIES,
            SOCKET_LINKS,
            NAKS,
            XGMI_DATA,
            SOCKET_CLOCKS,
            PARTITIONS_1_0,
        ],
    ),
    layout(
        (1, 7),
        2_208,
        &[
            SOCKET_START,
            MEMORY_BANDWIDTH,
            SOCKET_ENERGY,
            RESIDENCIES,
            SOCKET_LINKS,
            NAKS,
            XGMI_DATA,
            XGMI_STATUS,
            SOCKET_CLOCKS,
            PARTITIONS_1_1,
        ],
    ),
    layout(
        (1, 8),
        3_360,
        &[
            SOCKET_START,
            MEMORY_BANDWIDTH,
            SOCKET_ENERGY,
            RESIDENCIES,
            SOCKET_LINKS,
            NAKS,
            XGMI_DATA,
            XGMI_STATUS,
            SOCKET_CLOCKS,
            PARTITIONS_1_2,
        ],
    ),
    layout(
        (2, 0),
        120,
        &[
            APU_CLOCK,
            APU_SENSORS,
            APU_POWER,
            APU_CLOCKS,
            APU_PADDING_2_0,
        ],
    ),
    layout(
        (2, 1),
        120,
        &[APU_SENSORS, APU_CLOCK, APU_POWER, APU_CLOCKS, APU_PADDING],
    ),
    layout(
        (2, 2),
        128,
        &[
            APU_SENSORS,
            APU_CLOCK,
            APU_POWER,
            APU_CLOCKS,
            APU_PADDING,
            INDEPENDENT_THROTTLE,
        ],
    ),
    layout(
        (2, 3),
        152,
        &[
            APU_SENSORS,
            APU_CLOCK,
            APU_POWER,
            APU_CLOCKS,
            APU_PADDING,
            INDEPENDENT_THROTTLE,
            APU_AVERAGES,
        ],
    ),
    layout(
        (2, 4),
        168,
        &[
            APU_SENSORS_2_4,
            APU_CLOCK,
            APU_POWER_2_4,
            APU_CLOCKS,
            APU_PADDING,
            INDEPENDENT_THROTTLE,
            APU_AVERAGES_2_4,
            APU_CURRENTS,
        ],
    ),
    layout((3, 0), 264, &[APU_3_0]),
];

/// Names of the attributes of version 1.9, by number (`enum amdgpu_metrics_attr_id`).
pub(super) static ATTRIBUTES: &[&str] = &[
    "temperature_hotspot",
    "temperature_mem",
    "temperature_vrsoc",
    "curr_socket_power",
    "average_gfx_activity",
    "average_umc_activity",
    "mem_max_bandwidth",
    "energy_accumulator",
    "system_clock_counter",
    "accumulation_counter",
    "prochot_residency_acc",
    "ppt_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
    "gfxclk_lock_status",
    "pcie_link_width",
    "pcie_link_speed",
    "xgmi_link_width",
    "xgmi_link_speed",
    "gfx_activity_acc",
    "mem_activity_acc",
    "pcie_bandwidth_acc",
    "pcie_bandwidth_inst",
    "pcie_l0_to_recov_count_acc",
    "pcie_replay_count_acc",
    "pcie_replay_rover_count_acc",
    "pcie_nak_sent_count_acc",
    "pcie_nak_rcvd_count_acc",
    "xgmi_read_data_acc",
    "xgmi_write_data_acc",
    "xgmi_link_status",
    "firmware_timestamp",
    "current_gfxclk",
    "current_socclk",
    "current_vclk0",
    "current_dclk0",
    "current_uclk",
    "num_partition",
    "pcie_lc_perf_other_end_recovery",
    "gfx_busy_inst",
    "jpeg_busy",
    "vcn_busy",
    "gfx_busy_acc",
    "gfx_below_host_limit_ppt_acc",
    "gfx_below_host_limit_thm_acc",
    "gfx_low_utilization_acc",
    "gfx_below_host_limit_total_acc",
    "temperature_hbm",
    "temperature_mid",
    "temperature_aid",
    "temperature_xcd",
];

/// Units of version 1.9, by number (`enum amdgpu_metrics_attr_unit`).
pub(super) static ATTRIBUTE_UNITS: &[Unit] = &[
    Count,
    MegaHertz,
    Celsius,
    Watt,
    Nanoseconds,
    TenNanoseconds,
    GigaTransfers,
    DeciGigaTransfers,
    GigaBytesPerSecond,
    KibiBytes,
    Percent,
];
