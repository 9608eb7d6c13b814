//! Devices: a collector's description of a process's devices.
//!
//! Owns: turning such a record into what the profile stores, and into labels of streams. Because: each program
//! numbers its devices in its own order, so the number alone does not identify the device. Does not: infer anything
//! from other processes.

use deepctx_common::Plain as _;
use deepctx_common::device::{self as wire, flag};
use deepctx_profile::device::{DEVICES_MAX, Device, Instance, uuid};
use deepctx_profile::intern::StrId;
use deepctx_profile::profile::Profile;

use super::counts::{Counts, Gap};
use super::process::Process;

/// The device that a record describes.
fn device(record: &wire::Device) -> Device {
    let name = record.name.split(|&byte| byte == 0).next().unwrap_or_default();
    let instance = (record.flags & flag::INSTANCE != 0).then(|| Instance {
        gpu: record.instance[0],
        compute: record.instance[1],
        uuid: uuid("MIG", record.instance_uuid),
    });
    Device {
        number: record.number,
        name: String::from_utf8_lossy(name).into_owned(),
        uuid: uuid("GPU", record.uuid),
        capability: record.capability,
        multiprocessors: record.multiprocessors,
        clock_khz: record.clock_khz,
        memory_bytes: record.memory,
        divided: record.flags & flag::DIVIDED != 0,
        instance,
    }
}

impl Process {
    /// A device was reported.
    pub(super) fn device(&mut self, bytes: &[u8], counts: &mut Counts) {
        let Some(device) = wire::Device::read_from(bytes).map(|record| device(&record)) else {
            return counts.gap(Gap::Malformed, 1);
        };
        let known = self.info.devices.iter().position(|known| known.number == device.number);
        match known {
            Some(at) if self.info.devices[at] == device => return,
            Some(at) => self.info.devices[at] = device,
            None if self.info.devices.len() < DEVICES_MAX => self.info.devices.push(device),
            None => return counts.gap(Gap::StateFull, 1),
        }
        // Work that ran before the device was known stays where it is.
        self.forget_stream_frames();
    }

    /// A device of the process, by number.
    pub(super) fn device_of(&self, number: u32) -> Option<&Device> {
        self.info.devices.iter().find(|device| device.number == number)
    }

    /// A label of that device; empty if it was not reported.
    pub(super) fn device_label(&self, number: u32, profile: &mut Profile) -> StrId {
        let label = self.device_of(number).map(Device::label).unwrap_or_default();
        if label.is_empty() { StrId::EMPTY } else { profile.text(&label) }
    }
}
