//! The catalogue against what the vendors' headers declare.
//!
//! `fixtures/signatures.tsv` holds, for each symbol of the catalogue, the parameters as declared (library, symbol,
//! major version if they hold for one only, first version, parameters); `fixtures/layouts.tsv` offsets and sizes of
//! members as a C compiler computes them. `fixtures/extract.py` made the first from the packages that the catalogue
//! names. Where a folder with those packages is named by `DEEPCTX_VENDOR_HEADERS`, the facts are taken from there
//! again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use deepctx_events::Family;
use deepctx_uprobes::abi::Type;
use deepctx_uprobes::rows;

const SIGNATURES: &str = include_str!("fixtures/signatures.tsv");
const LAYOUTS: &str = include_str!("fixtures/layouts.tsv");

type Key = (String, String, String);

fn family_name(family: Family) -> &'static str {
    match family {
        Family::CudaDriver => "cuda-driver",
        Family::CudaRuntime => "cuda-runtime",
        Family::Hip => "hip",
        Family::Nccl => "nccl",
        Family::Rccl => "rccl",
        Family::Cupti => "cupti",
        Family::Torch | Family::C10 | Family::C10Cuda => "torch",
        Family::Nvtx | Family::TorchPython | Family::Roctx | Family::RoctxSdk => "ranges",
        Family::GnuOpenMp | Family::LlvmOpenMp | Family::IntelOpenMp => "openmp",
        Family::Jax | Family::XlaExtension => "xla",
        Family::User => "user",
    }
}

/// First version and types of the parameters.
fn declared() -> HashMap<Key, (&'static str, Vec<&'static str>)> {
    SIGNATURES
        .lines()
        .map(|line| {
            let [library, symbol, major, since, parameters] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let types = parameters.split("; ").filter(|p| *p != "void");
            // The last word is the name.
            let types = types.map(|p| p.rsplit_once(' ').map_or(p, |(kind, _)| kind)).collect();
            ((library.into(), symbol.into(), major.into()), (since, types))
        })
        .collect()
}

/// How a C type is passed, by what the headers say of it. Written apart from the tables, to be compared with them.
fn class(c: &str) -> String {
    let words: Vec<&str> =
        c.split_whitespace().filter(|w| !matches!(*w, "const" | "struct" | "enum")).collect();
    let plain = words.join(" ");
    if plain.contains('*') {
        return "8 bytes".into();
    }
    match plain.as_str() {
        "dim3" => "dim3".into(),
        "cudaExtent" | "hipExtent" => "24 bytes in memory".into(),
        "cudaPitchedPtr" | "hipPitchedPtr" => "32 bytes in memory".into(),
        "ncclUniqueId" => "128 bytes in memory".into(),
        "unsigned char" | "uint8_t" => "1 byte".into(),
        "unsigned short" => "2 bytes".into(),
        "int" | "unsigned int" | "unsigned" | "uint32_t" | "cuuint32_t" | "CUdevice" | "CUdevice_v1"
        | "CUdeviceptr_v1" | "hipDevice_t" => "4 bytes".into(),
        // Enumerations.
        "cudaMemcpyKind"
        | "hipMemcpyKind"
        | "cudaStreamCaptureMode"
        | "hipStreamCaptureMode"
        | "CUstreamCaptureMode"
        | "ncclDataType_t"
        | "ncclRedOp_t"
        | "CUpti_ActivityKind" => "4 bytes".into(),
        // A kind and an id, in one register.
        "CUmemLocation" | "CUmemLocation_v1" | "cudaMemLocation" => "8 bytes".into(),
        "size_t"
        | "unsigned long long"
        | "uint64_t"
        | "cuuint64_t"
        | "CUdeviceptr"
        | "CUdeviceptr_v2"
        | "CUmemGenericAllocationHandle"
        | "CUmemGenericAllocationHandle_v1" => "8 bytes".into(),
        // Everything else that is passed by value is a handle, and those are pointers.
        handle if handle.starts_with("CU") || handle.ends_with("_t") => "8 bytes".into(),
        other => panic!("unknown type {other:?}"),
    }
}

fn class_of(kind: Type) -> String {
    match kind {
        Type::Pointer | Type::U64 | Type::I64 | Type::Struct(8) => "8 bytes".into(),
        Type::U32 | Type::I32 => "4 bytes".into(),
        Type::U16 => "2 bytes".into(),
        Type::U8 => "1 byte".into(),
        Type::Dim3 => "dim3".into(),
        Type::Extent => "24 bytes in memory".into(),
        Type::PitchedPointer => "32 bytes in memory".into(),
        Type::Struct(bytes) => format!("{bytes} bytes in memory"),
        Type::Float => "vector".into(),
    }
}

#[test]
fn every_symbol_matches_the_parameters_and_version_in_its_header() {
    let mut declared = declared();
    for row in rows() {
        for name in row.names.iter() {
            let major = name.major.map_or("-".into(), |major| major.to_string());
            let key = (family_name(row.family).into(), name.symbol.to_string(), major);
            let (since, types) = declared.remove(&key).unwrap_or_else(|| panic!("not declared: {key:?}"));
            let expect: Vec<String> = types.into_iter().map(class).collect();
            let found: Vec<String> = row.parameters().iter().map(|(_, kind)| class_of(*kind)).collect();
            assert_eq!(found, expect, "{key:?}");
            assert_eq!(name.since.unwrap().to_string(), since, "{key:?}");
        }
    }
    assert!(declared.is_empty(), "declared, but not in the catalogue: {:?}", declared.keys());
}

#[test]
fn members_are_where_a_compiler_puts_them() {
    let layout: HashMap<(&str, &str), (u16, u16)> = LAYOUTS
        .lines()
        .map(|line| {
            let [structure, member, offset, size] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            ((structure, member), (offset.parse().unwrap(), size.parse().unwrap()))
        })
        .collect();
    let mut checked = 0;
    for field in rows().iter().flat_map(|row| row.fields()) {
        let (structure, member) = field.declared.split_once('.').unwrap();
        let (member, more) = member.split_once('+').unwrap_or((member, "0"));
        let (offset, size) = layout[&(structure, member)];
        let more: u16 = more.parse().unwrap();
        assert_eq!(field.offset, offset + more, "{}", field.declared);
        assert!(u16::from(field.scalar.bytes) + more <= size, "{}: {size} bytes", field.declared);
        checked += 1;
    }
    assert!(checked > 60, "{checked}");
    // HIP's copies of two and three dimensions share tables with CUDA's.
    for (cuda, hip, members) in [
        (
            "CUDA_MEMCPY2D",
            "hip_Memcpy2D",
            &[
                "srcMemoryType",
                "srcHost",
                "srcDevice",
                "dstMemoryType",
                "dstHost",
                "dstDevice",
                "WidthInBytes",
                "Height",
            ][..],
        ),
        (
            "CUDA_MEMCPY3D",
            "CUDA_MEMCPY3D_PEER",
            &["srcMemoryType", "srcHost", "dstMemoryType", "dstDevice", "WidthInBytes", "Height", "Depth"],
        ),
        ("cudaMemcpy3DParms", "hipMemcpy3DParms", &["srcPtr", "dstPtr", "extent", "kind"]),
    ] {
        for member in members {
            assert_eq!(layout[&(cuda, *member)], layout[&(hip, *member)], "{hip}.{member}");
        }
    }
    assert_eq!(layout[&("dim3", "-")].1, 12);
    assert_eq!((layout[&("cudaExtent", "-")].1, layout[&("cudaPitchedPtr", "-")].1), (24, 32));
    assert_eq!((layout[&("CUmemLocation", "-")].1, layout[&("cudaMemLocation", "-")].1), (8, 8));
}

#[test]
fn the_fixture_is_what_the_headers_say() {
    let Some(folder) = std::env::var_os("DEEPCTX_VENDOR_HEADERS") else {
        println!("skipped: DEEPCTX_VENDOR_HEADERS names no folder with the vendors' packages");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/extract.py");
    let output = Command::new("python3").arg(script).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut now = HashMap::new();
    for line in text.lines() {
        let [library, symbol, _, parameters] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        now.insert((library.to_owned(), symbol.to_owned()), parameters.to_owned());
    }
    let mut compared = 0;
    for line in SIGNATURES.lines() {
        let [library, symbol, major, _, parameters] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        // Rows of an older major version are of other packages; a few functions stand in no header.
        let Some(now) = now.get(&(library.to_owned(), symbol.to_owned())).filter(|_| major != "12") else {
            continue;
        };
        if now == "void" && parameters != "void" {
            continue;
        }
        assert_eq!(now, parameters, "{library} {symbol}");
        compared += 1;
    }
    assert!(compared > 500, "{compared} of {}", SIGNATURES.lines().count());
}
