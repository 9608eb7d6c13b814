//! Device: the properties of a device that do not change.
//!
//! Owns: name, UUID, architecture and size of each device ([`Device`]), and their text form. Because: a device number
//! is meaningful only within one process, and a profile outlives the machine it was recorded on. Does not: query
//! devices (a collector does).

pub mod activity;
pub mod gpu;
mod lines;
pub mod memory;
pub mod occupancy;
pub mod processes;

pub use lines::device_lines;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, counted};

/// Most devices of a process: no machine has more.
pub const DEVICES_MAX: usize = 128;
/// Digits of a UUID that distinguish the devices of a host.
const DIGITS: usize = 8;

/// One device of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Its number in the process.
    pub number: u32,
    /// Product name; empty if unknown.
    pub name: String,
    /// UUID: `GPU-` and its digits; empty when unknown.
    pub uuid: String,
    /// Compute capability: 9 and 0 for `sm_90`; zeroes when unknown.
    pub capability: [u32; 2],
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Clock of these, kHz.
    pub clock_khz: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The device is divided into instances (MIG).
    pub divided: bool,
    /// Which instance it is; `None` for a whole device.
    pub instance: Option<Instance>,
}

/// An instance of a divided device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Instance {
    /// Its GPU instance id on the device.
    pub gpu: u32,
    /// Its compute instance id.
    pub compute: u32,
    /// UUID: `MIG-` and its digits; empty when unknown.
    pub uuid: String,
}

/// A UUID in the notation of NVIDIA's tools: `GPU-` and its digits in five groups. Empty for all zeroes.
pub fn uuid(kind: &str, bytes: [u8; 16]) -> String {
    if bytes == [0; 16] {
        return String::new();
    }
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
    format!("{kind}-{}", groups.join("-"))
}

impl Device {
    /// Architecture: 90 for `sm_90`; `None` when unknown.
    pub fn arch(&self) -> Option<u32> {
        let [major, minor] = self.capability;
        let arch = major.checked_mul(10)?.checked_add(minor)?;
        (arch > 0).then_some(arch)
    }

    /// The UUID that identifies it: that of the instance, if it is one.
    pub fn own_uuid(&self) -> &str {
        let instance = self.instance.as_ref().map_or("", |instance| instance.uuid.as_str());
        if instance.is_empty() { &self.uuid } else { instance }
    }

    /// A short form, for labels: `H200 GPU-1234abcd`.
    pub fn label(&self) -> String {
        let name = self.name.strip_prefix("NVIDIA ").unwrap_or(&self.name);
        let uuid = self.own_uuid();
        let short = uuid.get(..4 + DIGITS).unwrap_or(uuid);
        [name, short].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// All facts in one line.
    pub fn line(&self) -> String {
        let mut line = format!("device {}", self.number);
        let mut part = |text: String| {
            line.push_str(if line.contains(": ") { ", " } else { ": " });
            line.push_str(&text);
        };
        if !self.name.is_empty() {
            part(self.name.clone());
        }
        if let Some(arch) = self.arch() {
            part(format!("sm_{arch}"));
        }
        if self.multiprocessors > 0 {
            part(counted(self.multiprocessors.into(), "multiprocessor"));
        }
        if self.memory_bytes > 0 {
            part(Bytes(self.memory_bytes).to_string());
        }
        if !self.uuid.is_empty() {
            part(self.uuid.clone());
        }
        match &self.instance {
            Some(Instance { gpu, compute, uuid }) => part(format!("instance {gpu}/{compute} {uuid}")),
            None if self.divided => part("divided into instances".to_owned()),
            None => {}
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> Device {
        Device {
            name: "NVIDIA H200".to_owned(),
            uuid: uuid("GPU", *b"\x12\x34\xab\xcd\0\x01\0\x02\0\x03\0\0\0\0\0\x04"),
            capability: [9, 0],
            multiprocessors: 132,
            memory_bytes: 140 << 30,
            ..Device::default()
        }
    }

    #[test]
    fn the_label_of_a_device_has_name_and_uuid() {
        assert_eq!(h200().label(), "H200 GPU-1234abcd");
        assert_eq!(
            h200().line(),
            "device 0: NVIDIA H200, sm_90, 132 multiprocessors, 140 GiB, GPU-1234abcd-0001-0002-0003-000000000004"
        );
        assert_eq!(h200().arch(), Some(90));
        assert_eq!(Device { multiprocessors: 1, ..Device::default() }.line(), "device 0: 1 multiprocessor");
    }

    #[test]
    fn the_label_of_an_instance_has_its_own_uuid() {
        let instance = Instance { gpu: 7, compute: 0, uuid: uuid("MIG", [0xff; 16]) };
        let mut device = Device { instance: Some(instance), divided: true, ..h200() };
        device.name.push_str(" MIG 1g.18gb");
        assert_eq!(device.label(), "H200 MIG 1g.18gb MIG-ffffffff");
        assert!(
            device.line().ends_with("instance 7/0 MIG-ffffffff-ffff-ffff-ffff-ffffffffffff"),
            "{}",
            device.line()
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let device = Device { number: 3, ..Device::default() };
        assert_eq!(
            (device.label(), device.line(), device.arch()),
            (String::new(), "device 3".to_owned(), None)
        );
        assert_eq!(Device { capability: [u32::MAX, 7], ..Device::default() }.arch(), None);
        assert_eq!(uuid("GPU", [0; 16]), "");
    }
}
