//! Tests of the disk cache.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use deepctx_address_space::FileVersion;

use super::cfi::*;
use super::{Elf, Section, TEXT};
use crate::unwind_rows::cache::{BLOCK_BYTES, Cache, CacheCounts, DEFAULT_BYTES, Key, decode, encode};
use crate::unwind_rows::{NoTable, UnwindTable};

fn elf(frames: u64) -> Vec<u8> {
    elf_with(frames, 0)
}

/// With other offsets.
fn elf_with(frames: u64, more: u64) -> Vec<u8> {
    let mut section = Section::default();
    let cie = section.cie("zR", &initial());
    for at in 0..frames {
        section.fde(cie, TEXT + at * 64, 64, &def_cfa_offset(16 + more + at % 50 * 8));
    }
    Elf::of(section).bytes()
}

/// A key for these bytes.
fn key(bytes: &[u8]) -> Key {
    Key::of_file(&FileVersion {
        device: 1,
        inode: u64::from(crc32fast::hash(bytes)),
        size: bytes.len() as u64,
        modified_ns: 0,
        changed_ns: 0,
        owner: 0,
        writable_by_others: false,
        foreign: false,
    })
}

/// Like a capture: a failing cache costs time, never a table.
fn load_or_build(cache: &Cache, bytes: &[u8]) -> Result<UnwindTable, NoTable> {
    if let Some(table) = cache.load(&key(bytes)) {
        return Ok(table);
    }
    let table = UnwindTable::from_elf(bytes)?;
    _ = cache.store(&key(bytes), &table);
    Ok(table)
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
    let built = load_or_build(&cache, &bytes).unwrap();
    let read = load_or_build(&cache, &bytes).unwrap();
    assert_eq!(built, read);
    assert_eq!(built, UnwindTable::from_elf(&bytes).unwrap());
    assert_eq!(cache.counts(), CacheCounts { hits: 1, misses: 1, ..CacheCounts::default() });
    // Another process finds it too.
    let other = Cache::open(&directory.path().join("new/rows"), DEFAULT_BYTES).unwrap();
    assert_eq!(other.load(&key(&bytes)), Some(built));
}

#[test]
fn rows_read_in_parts_equal_the_stored_rows() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    let (bytes, other) = (elf(5000), elf(4999));
    let table = load_or_build(&cache, &bytes).unwrap();
    load_or_build(&cache, &other).unwrap();
    assert_eq!(decode(&encode(&table)).as_ref(), Some(&table));
    let stored = cache.open_table(&key(&bytes)).unwrap();
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
        assert!(!cache.open_table(&key(&other)).unwrap().is_complete(&parts));
    }
    assert!(stored.read_blocks(blocks as u32, &mut [0; BLOCK_BYTES]).is_none());
}

#[test]
fn a_file_without_a_table_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    assert_eq!(load_or_build(&cache, b"nothing"), Err(NoTable::NotElf));
    assert!(files(directory.path()).is_empty());
}

#[test]
fn a_corrupt_file_is_removed_and_built_again() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    let bytes = elf(3);
    let table = load_or_build(&cache, &bytes).unwrap();
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
        assert_eq!(cache.load(&key(&bytes)), None);
        assert!(!path.exists());
        count += 1;
        assert_eq!(cache.counts().corrupt, count);
    }
    assert_eq!(load_or_build(&cache, &bytes), Ok(table));
}

#[test]
fn the_least_recently_used_table_is_evicted_first() {
    let directory = tempfile::tempdir().unwrap();
    let sources: Vec<Vec<u8>> = (1..=4).map(|frames| elf(100 + frames)).collect();
    let keys: Vec<Key> = sources.iter().map(|bytes| key(bytes)).collect();
    let size = {
        let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
        load_or_build(&cache, &sources[0]).unwrap();
        fs::metadata(&files(directory.path())[0]).unwrap().len()
    };
    let cache = Cache::open(directory.path(), size * 3 + size / 2).unwrap();
    for bytes in &sources[1..3] {
        load_or_build(&cache, bytes).unwrap();
    }
    for file in files(directory.path()) {
        set_age(&file, 1000);
    }
    // The first is used again, so that one of the other two is oldest.
    assert!(cache.load(&keys[0]).is_some());
    load_or_build(&cache, &sources[3]).unwrap();
    assert_eq!(cache.counts().evicted, 1);
    assert!(cache.load(&keys[0]).is_some() && cache.load(&keys[3]).is_some());
    let left = keys.iter().filter(|key| cache.load(key).is_some()).count();
    assert_eq!(left, 3);
}

#[test]
fn tables_above_the_size_limit_are_built_but_not_cached() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), 100).unwrap();
    assert!(load_or_build(&cache, &elf(10)).is_ok());
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
    load_or_build(&cache, &elf(3)).unwrap();
    assert_eq!([old.exists(), new.exists(), foreign.exists()], [false, true, true]);
}

#[test]
fn a_link_in_the_cache_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), DEFAULT_BYTES).unwrap();
    let bytes = elf(3);
    load_or_build(&cache, &bytes).unwrap();
    let file = &files(directory.path())[0];
    let elsewhere = directory.path().join("elsewhere");
    fs::rename(file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, file).unwrap();
    assert_eq!(cache.load(&key(&bytes)), None);
    assert_eq!(cache.counts().failed, 1);
}

#[test]
fn a_forged_copy_leaves_no_table_for_the_original() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(&directory.path().join("rows"), DEFAULT_BYTES).unwrap();
    let original = elf(50);
    // The last rules of the section: other offsets from the same number of bytes, and no other difference.
    let mut forged = original.clone();
    let other = elf_with(50, 8);
    assert_eq!(original.len(), other.len());
    let differ: Vec<usize> = (0..other.len()).filter(|&at| other[at] != original[at]).collect();
    for at in &differ[..3] {
        forged[*at] = other[*at];
    }
    let [real, copy] = ["real.so", "copy.so"].map(|name| directory.path().join(name));
    fs::write(&real, &original).unwrap();
    fs::write(&copy, &forged).unwrap();
    let [real, copy] = [real, copy].map(|path| File::options().read(true).write(true).open(path).unwrap());
    // Its owner can set this time.
    copy.set_modified(real.metadata().unwrap().modified().unwrap()).unwrap();
    let key_of = |file: &File| Key::of_file(&FileVersion::of(file).unwrap());
    let poison = UnwindTable::from_elf(&forged).unwrap();
    assert_ne!(poison, UnwindTable::from_elf(&original).unwrap());
    cache.store(&key_of(&copy), &poison).unwrap();
    assert_eq!(cache.load(&key_of(&real)), None);
    assert_eq!(cache.load(&key_of(&copy)), Some(poison));
}

#[test]
fn every_part_of_a_version_is_in_the_key() {
    let version = FileVersion {
        device: 1,
        inode: 2,
        size: 3,
        modified_ns: 4,
        changed_ns: 5,
        owner: 6,
        writable_by_others: false,
        foreign: false,
    };
    let foreign = FileVersion { foreign: true, ..version };
    let versions = [
        version,
        FileVersion { inode: 7, ..version },
        FileVersion { size: 7, ..version },
        FileVersion { modified_ns: -7, ..version },
        FileVersion { changed_ns: 7, ..version },
        FileVersion { owner: 7, ..version },
        foreign,
        FileVersion { device: 7, ..foreign },
    ];
    for (n, version) in versions.iter().enumerate() {
        for other in &versions[..n] {
            assert_ne!(Key::of_file(version), Key::of_file(other));
        }
    }
    // The same file seen from two containers.
    assert_eq!(Key::of_file(&version), Key::of_file(&FileVersion { device: 7, ..version }));
}
