//! The library inside the Python module, as CPython's loader sees it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use object::elf::{self, FileHeader64};
use object::read::elf::FileHeader as _;
use object::{LittleEndian, NameOrOrdinal, Object as _};

/// Reads the library, which cargo builds because this test is linked with it.
fn library() -> Vec<u8> {
    std::fs::read(std::env::current_exe().unwrap().with_file_name("libdeepctx_native.so")).unwrap()
}

#[test]
fn cpython_finds_the_start_of_the_module() {
    let bytes = library();
    let file = object::File::parse(&*bytes).unwrap();
    let mut exports = file.exports().unwrap();
    assert!(exports.any(|export| export.unwrap().name() == NameOrOrdinal::Name(b"PyInit__native")));
}

/// Any CPython loads it: none is loaded with it.
#[test]
fn no_libpython_is_needed() {
    let bytes = library();
    let endian = LittleEndian;
    let sections = FileHeader64::parse(&*bytes).and_then(|header| header.sections(endian, &*bytes)).unwrap();
    let (dynamic, strings) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
    let strings = sections.strings(endian, &*bytes, strings).unwrap();
    let needed = dynamic.iter().filter(|entry| entry.d_tag.get(endian) == elf::DT_NEEDED);
    let names = needed.map(|entry| strings.get(u32::try_from(entry.d_val.get(endian)).unwrap()).unwrap());
    let names: Vec<_> = names.map(String::from_utf8_lossy).collect();
    assert!(names.iter().any(|name| name == "libc.so.6"), "{names:?}");
    assert!(names.iter().all(|name| !name.contains("python")), "{names:?}");
}
