//! Sources of names, as arbitrary bytes: maps, kallsyms, perf maps, jitdump, ELF files.
//!
//! The first byte selects the format of the rest. Beyond "no panic, no hang, bounded memory": results are sorted and
//! not longer than the input, and reading in pieces gives the same as reading at once.

use std::ffi::OsStr;

use deepctx_symbolizer::Kallsyms;
use deepctx_symbolizer::jit::{DumpHeader, parse_jitdump, parse_perf_map, parse_records};
use deepctx_symbolizer::maps::{self, Backing, LineFilter, Mapping};
use deepctx_symbolizer::native::{DebugInfo, Modules, NativeSymbolizer};
use deepctx_symbolizer::{Avma, FileOffset, KernelAddr, Svma};

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 5 {
        0 => {
            let all = maps::parse(data, LineFilter::All);
            assert!(all.mappings.windows(2).all(|pair| pair[0].end <= pair[1].begin));
            let code = maps::parse(data, LineFilter::Executable);
            assert!(code.mappings.iter().all(|mapping| mapping.executable));
        }
        1 => {
            let table = Kallsyms::parse(data);
            let address = data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if let Ok(symbol) = table.lookup(KernelAddr(address)) {
                assert!(symbol.start.0 <= address);
            }
        }
        2 => {
            let whole = parse_perf_map(data);
            assert!(whole.consumed <= data.len());
            let first = parse_perf_map(&data[..data.len() / 2]);
            let second = parse_perf_map(&data[first.consumed..]);
            assert_eq!([first.entries, second.entries].concat(), whole.entries);
        }
        3 => {
            let _ = parse_jitdump(data);
            let header = DumpHeader { size: 40, monotonic: true, pid: 1 };
            let whole = parse_records(data, header);
            let first = parse_records(&data[..data.len() / 2], header);
            if !first.ended {
                let rest =
                    usize::try_from(first.next).ok().and_then(|next| data.get(next..)).unwrap_or_default();
                let second = parse_records(rest, header);
                assert_eq!([first.events, second.events].concat(), whole.events);
            }
        }
        _ => name(data),
    }
}

/// Looks up names for some addresses of a file with these bytes.
fn name(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("deepctx-fuzz-{}", std::process::id()));
    if std::fs::write(&path, bytes).is_err() {
        return;
    }
    let mapping = Mapping {
        begin: Avma(0x1000),
        end: Avma(0x2000),
        offset: FileOffset(0),
        device: Default::default(),
        inode: 1,
        readable: true,
        writable: false,
        executable: true,
        backing: Backing::File,
        path: OsStr::new(&path).into(),
    };
    let (mut modules, mut native) = (Modules::new(), NativeSymbolizer::new(DebugInfo::default()));
    if let Ok((module, _)) = modules.open_mapping(std::process::id(), &mapping) {
        let segments = modules.get(module).map(|module| module.facts().segments.clone()).unwrap_or_default();
        let addresses: Vec<Svma> = segments
            .iter()
            .flat_map(|s| (0..8).map(|i| Svma(s.svma.0.wrapping_add(s.memory_size / 8 * i))))
            .take(64)
            .collect();
        assert_eq!(native.symbolize(&mut modules, module, &addresses).len(), addresses.len());
    }
}
