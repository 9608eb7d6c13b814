//! Packs the kernel programs for the machine that the build targets.
//!
//! Owns: the packed object that `arch.rs` includes. Because: packed, it has a fifth of its size, and every package
//! and every binary contains it. Does not: build it (`cargo xtask ebpf`).

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write as _;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let variable = |name| env::var(name).expect("cargo sets it");
    let machine = variable("CARGO_CFG_TARGET_ARCH");
    let prebuilt = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../../ebpf/prebuilt");
    let object = prebuilt.join(format!("deepctx-{machine}.bpf.o"));
    println!("cargo::rerun-if-changed={}", object.display());
    let Ok(object) = fs::read(&object) else {
        panic!("no kernel programs for {machine}: {} cannot be read", object.display());
    };
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&object).expect("memory takes it");
    let packed = packed.finish().expect("memory takes it");
    let folder = PathBuf::from(variable("OUT_DIR"));
    fs::write(folder.join("object.zlib"), packed).expect("the folder can be written");
    fs::write(folder.join("object_bytes"), object.len().to_string()).expect("the folder can be written");
}
