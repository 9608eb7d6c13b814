//! Prints how full the kernel tables of a process are: `table_fill PID`, one line `NAME ENTRIES CAPACITY` for each.
//!
//! Owns: finding the tables, and counting their entries. Because: a table that fills up in days refuses nothing in the
//! first minutes. Does not: know what a table is for.

use std::collections::BTreeSet;
use std::error::Error;
use std::{fs, io};

use libbpf_rs::{MapCore as _, MapHandle, MapType};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: table_fill PID")?;
    for id in map_ids(&pid)? {
        // It may be gone by now.
        let Ok(map) = MapHandle::from_map_id(id) else { continue };
        if matches!(map.map_type(), MapType::Hash | MapType::PercpuHash | MapType::LruHash) {
            let capacity = map.max_entries();
            // Entries that change meanwhile can make the walk begin again.
            let entries = map.keys().take(capacity as usize).count();
            println!("{} {entries} {capacity}", map.name().to_string_lossy());
        }
    }
    Ok(())
}

/// Ids of the maps that a process has open (the kernel's `bpf_map_show_fdinfo`).
fn map_ids(pid: &str) -> io::Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    for descriptor in fs::read_dir(format!("/proc/{pid}/fdinfo"))?.flatten() {
        // It may be closed by now.
        let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
        ids.extend(text.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse::<u32>().ok()));
    }
    Ok(ids)
}
