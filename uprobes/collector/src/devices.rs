//! Devices of the process, as CUPTI describes them.
//!
//! Owns: which devices are known, and reporting them. Because: CUPTI reports each once, while listeners come and go.
//! Does not: call the driver.

use std::sync::{Mutex, PoisonError};

use deepctx_common::device::{Device, NAME_MAX, flag, of_cupti};

use crate::convert::{at, u32_at, u64_at};
use crate::{memory, probe};

/// Maximum number of remembered devices: no machine has more instances.
const DEVICES_MAX: usize = 128;

static KNOWN: Mutex<Vec<Device>> = Mutex::new(Vec::new());

/// Stores and reports a device record; false when it is shorter than its structure.
pub(crate) fn add(record: &[u8]) -> bool {
    let Some(device) = device(record) else { return false };
    let mut devices = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = devices.iter().position(|known| known.number == device.number);
    match known {
        Some(at) => devices[at] = device,
        None if devices.len() < DEVICES_MAX => devices.push(device),
        None => {}
    }
    drop(devices);
    probe::device(&device);
    true
}

/// Reports all devices.
pub(crate) fn report() {
    let devices = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    devices.iter().for_each(probe::device);
}

/// Reads a device record; `record` is the rest of its buffer.
fn device(record: &[u8]) -> Option<Device> {
    if record.len() < of_cupti::BYTES {
        return None;
    }
    let two = |offset: usize| [u32_at(record, offset), u32_at(record, offset + 4)];
    let mut device = Device {
        number: u32_at(record, of_cupti::NUMBER),
        capability: two(of_cupti::CAPABILITY),
        multiprocessors: u32_at(record, of_cupti::MULTIPROCESSORS),
        clock_khz: u32_at(record, of_cupti::CLOCK),
        memory: u64_at(record, of_cupti::MEMORY),
        uuid: at(record, of_cupti::UUID),
        ..Device::default()
    };
    if record[of_cupti::DIVIDED] != 0 {
        device.flags |= flag::DIVIDED;
        let (instance, uuid) = (two(of_cupti::INSTANCE), at(record, of_cupti::INSTANCE_UUID));
        // CUPTI sets all ones when there is no instance.
        if instance[0] != u32::MAX && uuid != [0; 16] {
            device.flags |= flag::INSTANCE;
            (device.instance, device.instance_uuid) = (instance, uuid);
        }
    }
    let mut room = [0; NAME_MAX];
    if let Some(length) = memory::text(u64_at(record, of_cupti::NAME), &mut room) {
        device.name[..length].copy_from_slice(&room[..length]);
    }
    Some(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::tests::check;

    #[test]
    fn members_of_devices_are_where_the_headers_have_them() {
        for structure in ["CUpti_ActivityDevice5", "CUpti_ActivityDevice6"] {
            check(
                structure,
                &[
                    ("globalMemorySize", of_cupti::MEMORY),
                    ("coreClockRate", of_cupti::CLOCK),
                    ("numMultiprocessors", of_cupti::MULTIPROCESSORS),
                    ("computeCapabilityMajor", of_cupti::CAPABILITY),
                    ("computeCapabilityMinor", of_cupti::CAPABILITY + 4),
                    ("id", of_cupti::NUMBER),
                    ("uuid", of_cupti::UUID),
                    ("name", of_cupti::NAME),
                    ("isMigEnabled", of_cupti::DIVIDED),
                    ("gpuInstanceId", of_cupti::INSTANCE),
                    ("computeInstanceId", of_cupti::INSTANCE + 4),
                    ("migUuid", of_cupti::INSTANCE_UUID),
                ],
            );
        }
    }

    #[test]
    fn an_instance_has_numbers_only_where_the_device_is_divided() {
        let mut record = [0xffu8; of_cupti::BYTES];
        record[of_cupti::DIVIDED] = 0;
        let whole = device(&record).unwrap();
        assert_eq!((whole.flags, whole.instance, whole.name[0]), (0, [0; 2], 0));
        record[of_cupti::DIVIDED] = 1;
        assert_eq!(device(&record).unwrap().flags, flag::DIVIDED, "the numbers are none");
        record[of_cupti::INSTANCE] = 3;
        let part = device(&record).unwrap();
        assert_eq!((part.flags, part.instance[0]), (flag::DIVIDED | flag::INSTANCE, 0xffff_ff03));
        assert_eq!(device(&record[1..]), None);
    }
}
