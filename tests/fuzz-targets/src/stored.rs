//! Profiles on disk, as arbitrary bytes.
//!
//! The first byte selects one of: a whole packed profile, its manifest alone, or the file of one table, whose checksum
//! is corrected so that the input reaches the Parquet reader and our row decoder. Beyond "no panic, no hang, bounded
//! memory": a profile that opens can be reported, and missing parts are reported.

use std::io::Write as _;

use deepctx_analysis::{Report, Selection, Subset, render};
use deepctx_storage::{FormatVersion, Note, open};

const TABLES: [&str; 8] =
    ["frames", "nodes", "values", "ledger", "executables", "timeline", "shapes", "activities"];

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    let packed = match usize::from(kind) % 10 {
        0 => data.to_vec(),
        1 => archive(&[("manifest.json", data)]),
        kind => {
            let table = TABLES[kind - 2];
            let (rows, data) = data.split_at(data.len().min(2));
            let rows = rows.iter().fold(0u32, |rows, &byte| rows << 8 | u32::from(byte));
            let file = format!("{table}-000000.parquet");
            let manifest = format!(
                r#"{{"format":"deepctx-profile","version":{},"complete":true,"end_ns":1,"segments":[
                {{"table":"{table}","file":"{file}","rows":{rows},"bytes":{},"crc32":{}}}]}}"#,
                FormatVersion::CURRENT.major,
                data.len(),
                crc32fast::hash(data)
            );
            archive(&[("manifest.json", manifest.as_bytes()), (&file, data)])
        }
    };
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    file.write_all(&packed).expect("a file in memory takes everything");
    if let Ok(opened) = open(file.path()) {
        assert_eq!(opened.is_complete(), !opened.notes.iter().any(Note::is_damage));
        let subset = Subset::new(&opened.profile, &Selection::of(deepctx_profile::Metric::CpuTime));
        let report = Report::compute(&subset, opened.elapsed);
        for names in [render::text::Names::Short, render::text::Names::Full] {
            render::text::write(&report, names, &mut Vec::new()).expect("memory takes everything");
            render::text::write_all(&report, names, &mut Vec::new()).expect("memory takes everything");
        }
    }
}

/// A plain tar archive.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in files {
        let mut block = [0u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        block[156] = b'0';
        block[257..262].copy_from_slice(b"ustar");
        out.extend_from_slice(&block);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out
}
