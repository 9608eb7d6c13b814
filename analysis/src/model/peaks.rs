//! Peaks: the limits of a device, and which of the two some work reaches first.
//!
//! Owns: [`Peaks`], a table of devices, and [`Bound`]. Because: operations and bytes mean something only relative to
//! the limits of a device. Does not: measure a device.
//!
//! Peaks come from the vendors' data sheets, for dense single precision without tensor cores, PyTorch's default. For
//! another precision, the user gives the peak.

use deepctx_profile::profile::Profile;
use serde::{Deserialize, Serialize};

/// Devices by a part of their name, more specific ones first: operations per second, bytes per second, source.
const DEVICES: &[(&str, f64, f64, &str)] = &[
    ("V100-PCIE", 14.0e12, 900.0e9, "NVIDIA V100 data sheet (2020)"),
    ("V100-SXM2", 15.7e12, 900.0e9, "NVIDIA V100 data sheet (2020)"),
    ("P100-PCIE-16GB", 9.3e12, 732.0e9, "NVIDIA P100 PCIe data sheet (2016)"),
    ("Tesla T4", 8.1e12, 320.0e9, "NVIDIA T4 data sheet (2019)"),
    ("A100-SXM4-40GB", 19.5e12, 1555.0e9, "NVIDIA A100 data sheet (2021)"),
    ("A100-PCIE-40GB", 19.5e12, 1555.0e9, "NVIDIA A100 data sheet (2021)"),
    ("A100-SXM4-80GB", 19.5e12, 2039.0e9, "NVIDIA A100 data sheet (2021)"),
    ("A100 80GB PCIe", 19.5e12, 1935.0e9, "NVIDIA A100 data sheet (2021)"),
    ("NVIDIA L4", 30.3e12, 300.0e9, "NVIDIA L4 data sheet (2023)"),
    ("H100 80GB HBM3", 67.0e12, 3350.0e9, "NVIDIA H100 data sheet, SXM (2024)"),
    ("H200 NVL", 60.0e12, 4800.0e9, "NVIDIA H200 data sheet, NVL (2024)"),
    ("H200", 67.0e12, 4800.0e9, "NVIDIA H200 data sheet, SXM (2024)"),
    ("MI210", 22.6e12, 1638.0e9, "AMD Instinct MI210 data sheet (2022)"),
    ("MI300X", 163.4e12, 5300.0e9, "AMD Instinct MI300X data sheet (2023)"),
];

/// Limits of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peaks {
    /// Floating-point operations per second.
    pub flops_per_second: f64,
    /// Memory bandwidth in bytes per second.
    pub bytes_per_second: f64,
    /// Operations per byte at which both limits are reached: the ridge point of the roofline.
    pub ridge_flops_per_byte: f64,
    /// Source of the two figures.
    pub source: String,
}

/// The limit that work reaches first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Memory: fewer operations per byte than at the ridge point.
    Memory,
    /// Arithmetic.
    Compute,
}

impl Bound {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Memory => "memory",
            Bound::Compute => "compute",
        }
    }
}

impl Peaks {
    /// The two peaks, with their source; `None` unless both are above zero.
    pub fn new(flops_per_second: f64, bytes_per_second: f64, source: &str) -> Option<Self> {
        let usable = |rate: f64| rate.is_finite() && rate > 0.0;
        (usable(flops_per_second) && usable(bytes_per_second)).then(|| Peaks {
            flops_per_second,
            bytes_per_second,
            ridge_flops_per_byte: flops_per_second / bytes_per_second,
            source: source.to_owned(),
        })
    }

    /// The peaks of a device by its name; `None` if it is not in the table.
    pub fn of_device(name: &str) -> Option<Self> {
        let (_, flops, bytes, source) = DEVICES.iter().find(|(part, ..)| has_words(name, part))?;
        Peaks::new(*flops, *bytes, &format!("{source}, single precision"))
    }

    /// The peaks of a profile's devices; `None` if they are unknown, or differ.
    pub(super) fn of_profile(profile: &Profile) -> Option<Self> {
        let devices = profile.gpu.processes.iter().flat_map(|process| &process.devices);
        // An instance of a partitioned device has an unknown part of its limits.
        let mut known = devices.map(|of| of.instance.is_none().then(|| Peaks::of_device(&of.name)).flatten());
        let first = known.next()??;
        known.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    /// The limit that work with this many operations per byte reaches first.
    pub(super) fn bound(&self, flops_per_byte: f64) -> Bound {
        if flops_per_byte < self.ridge_flops_per_byte { Bound::Memory } else { Bound::Compute }
    }
}

/// Whether a name contains these whole words: an L4 is not an L40, and a GH200 not an H200.
fn has_words(name: &str, words: &str) -> bool {
    let is_part = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    name.match_indices(words).any(|(at, found)| {
        let (before, behind) = (&name[..at], &name[at + found.len()..]);
        !is_part(before.chars().next_back()) && !is_part(behind.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use deepctx_profile::device::activity::GpuProcess;
    use deepctx_profile::device::{Device, Instance};

    use super::*;

    #[test]
    fn peaks_are_those_of_the_device_name() {
        let check = |name: &str, expect: Option<(f64, f64)>| {
            let found = Peaks::of_device(name).map(|of| (of.flops_per_second, of.bytes_per_second));
            assert_eq!(found, expect, "{name}");
        };
        check("Tesla V100-SXM2-16GB", Some((15.7e12, 900e9)));
        check("NVIDIA A100-SXM4-80GB", Some((19.5e12, 2039e9)));
        check("NVIDIA H100 80GB HBM3", Some((67e12, 3350e9)));
        check("NVIDIA H200", Some((67e12, 4800e9)));
        check("NVIDIA L40S", None);
        check("NVIDIA GH200 480GB", None);
        check("", None);
    }

    #[test]
    fn different_or_divided_devices_have_no_common_peak() {
        let check = |names: &[&str], divided: bool, expect: bool| {
            let mut profile = Profile::new(Default::default(), Default::default());
            let instance = divided.then(Instance::default);
            let device = |name: &&str| Device {
                name: (*name).into(),
                instance: instance.clone(),
                ..Device::default()
            };
            let devices = names.iter().map(device).collect();
            profile.gpu.processes.push(GpuProcess { devices, ..GpuProcess::default() });
            assert_eq!(Peaks::of_profile(&profile).is_some(), expect, "{names:?}");
        };
        check(&["NVIDIA H200", "NVIDIA H200"], false, true);
        check(&["NVIDIA H200", "Tesla T4"], false, false);
        check(&["NVIDIA H200"], true, false);
        check(&[], false, false);
    }

    #[test]
    fn the_ridge_divides_memory_from_compute() {
        let peaks = Peaks::new(10.0, 2.0, "given").unwrap();
        assert_eq!([4.9, 5.0].map(|intensity| peaks.bound(intensity)), [Bound::Memory, Bound::Compute]);
        assert_eq!(Peaks::new(1.0, 0.0, "given"), None);
        assert_eq!(Peaks::new(f64::NAN, 1.0, "given"), None);
    }
}
