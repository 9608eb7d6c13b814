//! Tests of the disk cache.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::cfi::*;
use super::{Elf, Section, TEXT};
use crate::unwind_rows::cache::{BLOCK_BYTES, Cache, CacheCounts, DEFAULT_BYTES, Key, decode, encode};
use crate::unwind_rows::{NoTable, UnwindTable};

fn elf(frames: u64) -> Vec<u8> {
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    for at in 0..frames {
        section.fde(cie, TEXT + at * 64, 64, &def_cfa_offset(16 + at % 50 * 8));
    }
    Elf::of(section).bytes()
}

fn with_build_id(id: &[u8]) -> Vec<u8> {
    let mut elf = Elf::without_frames();
    let note = [&4u32.to_le_bytes()[..], &(id.len() as u32).to_le_bytes(), &3u32.to_le_bytes(), b"GNU\0", id];
    elf.sections.push((".note.gnu.build-id", 0x200, 2, note.concat()));
    elf.segments.push((4, 0));
    elf.bytes()
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn set_age(path: &Path, seconds: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

#[test]
fn a_stored_table_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(&directory.path().join("new/rows"), DEFAULT_BYTES).unwrap();
    let bytes = elf(5000);
    let built = cache.load_or_build(&bytes).unwrap();
    let read = cache.load_or_build(&bytes).unwrap();
    assert_eq!(built, read);
    assert_eq!(built, UnwindTable::from_elf(&bytes).unwrap());
    assert_eq!(cache.counts(), CacheCounts { hits: 1, misses: 1, ..CacheCounts::default() });
    // Another process finds it too.
    let other = Cache::open(&directory.path().join("new/rows"), DEFAULT_BYTES).unwrap();
    assert_eq!(other.load(&Key::of_elf(&bytes)), Some(built));
}

#[test]
fn rows_read_in_parts_equal_the_stored_rows() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    let (bytes, other) = (elf(5000), elf(4999));
    let table = cache.load_or_build(&bytes).unwrap();
    cache.load_or_build(&other).unwrap();
    assert_eq!(decode(&encode(&table)).as_ref(), Some(&table));
    let stored = cache.open_table(&Key::of_elf(&bytes)).unwrap();
    assert_eq!((stored.pages(), stored.rules()), (table.pages(), table.rules()));
    let blocks = table.blocks().len();
    for size in [1, 7, blocks] {
        let mut expected = vec![0; blocks * BLOCK_BYTES];
        table.copy_blocks(0, &mut expected);
        let mut read = vec![0; blocks * BLOCK_BYTES];
        let parts: Vec<_> = read
            .chunks_mut(size * BLOCK_BYTES)
            .enumerate()
            .map(|(n, into)| stored.read_blocks((n * size) as u32, into).unwrap())
            .collect();
        assert_eq!(read, expected);
        assert!(stored.is_complete(&parts));
        // Missing parts, another order, and rows of another table are detected.
        assert!(!stored.is_complete(&parts[1..]));
        assert!(parts.len() == 1 || !stored.is_complete(parts.iter().rev()));
        assert!(!cache.open_table(&Key::of_elf(&other)).unwrap().is_complete(&parts));
    }
    assert!(stored.read_blocks(blocks as u32, &mut [0; BLOCK_BYTES]).is_none());
}

#[test]
fn a_file_without_a_table_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    assert_eq!(cache.load_or_build(b"nothing"), Err(NoTable::NotElf));
    assert!(files(directory.path()).is_empty());
}

#[test]
fn a_corrupt_file_is_removed_and_built_again() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    let bytes = elf(3);
    let table = cache.load_or_build(&bytes).unwrap();
    let [path] = &files(directory.path())[..] else { panic!("one file") };
    let valid = fs::read(path).unwrap();
    let damaged = (0..valid.len()).map(|at| {
        let mut damaged = valid.clone();
        damaged[at] ^= 1 << (at % 8);
        damaged
    });
    let cut = (0..valid.len()).step_by(7).map(|length| valid[..length].to_vec());
    let longer = [&valid[..], &[0]].concat();
    let mut count = 0;
    for damaged in damaged.chain(cut).chain([longer]) {
        assert_eq!(decode(&damaged), None);
        fs::write(path, &damaged).unwrap();
        assert_eq!(cache.load(&Key::of_elf(&bytes)), None);
        assert!(!path.exists());
        count += 1;
        assert_eq!(cache.counts().corrupt, count);
    }
    assert_eq!(cache.load_or_build(&bytes), Ok(table));
}

#[test]
fn the_least_recently_used_table_is_evicted_first() {
    let directory = tempfile::tempdir().unwrap();
    let sources: Vec<Vec<u8>> = (1..=4).map(|frames| elf(100 + frames)).collect();
    let keys: Vec<Key> = sources.iter().map(|bytes| Key::of_elf(bytes)).collect();
    let size = {
        let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
        cache.load_or_build(&sources[0]).unwrap();
        fs::metadata(&files(directory.path())[0]).unwrap().len()
    };
    let cache = Cache::open(directory.path(), size * 3 + size / 2).unwrap();
    for bytes in &sources[1..3] {
        cache.load_or_build(bytes).unwrap();
    }
    for file in files(directory.path()) {
        set_age(&file, 1000);
    }
    // The first is used again, so that one of the other two is oldest.
    assert!(cache.load(&keys[0]).is_some());
    cache.load_or_build(&sources[3]).unwrap();
    assert_eq!(cache.counts().evicted, 1);
    assert!(cache.load(&keys[0]).is_some() && cache.load(&keys[3]).is_some());
    let left = keys.iter().filter(|key| cache.load(key).is_some()).count();
    assert_eq!(left, 3);
}

#[test]
fn tables_above_the_size_limit_are_built_but_not_cached() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), 100).unwrap();
    assert!(cache.load_or_build(&elf(10)).is_ok());
    assert_eq!(cache.counts(), CacheCounts { misses: 1, failed: 1, ..CacheCounts::default() });
    assert!(files(directory.path()).is_empty());
}

#[test]
fn only_old_temporary_files_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let [old, new, foreign] = [".writing-1-0-0", ".writing-2-0-0", "notes.txt"].map(|name| {
        let path = directory.path().join(name);
        fs::write(&path, "x").unwrap();
        path
    });
    set_age(&old, 3600);
    set_age(&foreign, 3600);
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    cache.load_or_build(&elf(3)).unwrap();
    assert_eq!([old.exists(), new.exists(), foreign.exists()], [false, true, true]);
}

#[test]
fn a_link_in_the_cache_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    let bytes = elf(3);
    cache.load_or_build(&bytes).unwrap();
    let file = &files(directory.path())[0];
    let elsewhere = directory.path().join("elsewhere");
    fs::rename(file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, file).unwrap();
    assert_eq!(cache.load(&Key::of_elf(&bytes)), None);
    assert_eq!(cache.counts().failed, 1);
}

#[test]
fn a_key_is_build_id_and_size_or_content() {
    let id: Vec<u8> = (1..=20).collect();
    let file = with_build_id(&id);
    assert_eq!(Key::of_elf(&file), Key::of_build_id(&id, file.len() as u64));
    let mut stripped = file.clone();
    stripped.extend([0; 8]);
    assert_ne!(Key::of_elf(&file), Key::of_elf(&stripped));
    // Any change of the content counts; also with a build-id too short to identify the file.
    for without in [elf(10), with_build_id(&[1, 2])] {
        for at in [without.len() / 2, without.len() - 1] {
            let mut other = without.clone();
            other[at] ^= 1;
            assert_ne!(Key::of_elf(&without), Key::of_elf(&other));
        }
    }
}
