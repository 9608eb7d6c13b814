//! Writes what follows from tables: callback ids, and stubs for every function of the probe catalogue that is not
//! written by hand.
//!
//! Owns: that no row of the catalogue is missing from a simulated library. Because: a probe that finds no symbol in the
//! tests would be found missing on a user's machine. Does not: give stubs behaviour: they answer "not supported".

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Catalogue library, module with the hand-written part, callback domain.
const LIBRARIES: [(&str, &str, &str); 5] = [
    ("cuda-driver", "cuda", "Driver"),
    ("cuda-runtime", "cudart", "Runtime"),
    ("cupti", "cupti", "Tool"),
    ("hip", "hip", "Hip"),
    ("nccl", "nccl", "Nccl"),
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let signatures = root.join("../../uprobes/tests/fixtures/signatures.tsv");
    let cbids = root.join("fixtures/cbids.tsv");
    for path in [&signatures, &cbids, &root.join("src")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let cbids = fs::read_to_string(&cbids).expect("the fixture is there");
    fs::write(out.join("cbids.rs"), ids(&cbids)).expect("the folder can be written");
    let signatures = fs::read_to_string(&signatures).expect("the fixture is there");
    for (library, module, domain) in LIBRARIES {
        let rows = rows(&signatures, library);
        let written = written(&root.join("src").join(module));
        let mut text = stubs(&rows, &written, domain);
        if module == "cuda" {
            text.push_str(&versions(&rows));
        }
        fs::write(out.join(format!("{module}.rs")), text).expect("the folder can be written");
    }
}

/// Writes constants by function and a table by name.
fn ids(table: &str) -> String {
    let mut modules: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for line in table.lines() {
        if let [domain, name, number] = line.split('\t').collect::<Vec<_>>()[..] {
            modules.entry(domain).or_default().push((name, number));
        }
    }
    let mut text = String::new();
    for (domain, entries) in modules {
        let _ = writeln!(text, "/// Callback ids of the {domain}, by number.");
        let _ = writeln!(text, "pub(crate) const {}: &[(&str, u32)] = &[", domain.to_uppercase());
        for (name, number) in entries {
            let _ = writeln!(text, "    ({name:?}, {number}),");
        }
        let _ = writeln!(text, "];");
    }
    text
}

/// Functions of one library: first version (12.4 is 12040) and parameters.
fn rows<'t>(table: &'t str, library: &str) -> BTreeMap<&'t str, (u32, &'t str)> {
    let mut rows = BTreeMap::new();
    for line in table.lines() {
        let [of, symbol, major, since, parameters] = line.split('\t').collect::<Vec<_>>()[..] else {
            continue;
        };
        // If parameters differ by version, use the later ones.
        if of == library && major != "12" {
            let (major, minor) = since.split_once('.').unwrap_or((since, "0"));
            let number = |text: &str| text.parse::<u32>().unwrap_or(0);
            rows.insert(symbol, (number(major) * 1000 + number(minor) * 10, parameters));
        }
    }
    rows
}

/// Every function defined in the module's sources: names before a parameter list within `api!`.
fn written(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("a module is a folder") {
        let text = fs::read_to_string(entry.expect("can be listed").path()).expect("is text");
        let begin = |line: &str| {
            line.strip_prefix("extern \"C\" ").unwrap_or(line).strip_prefix("fn ").map(str::to_owned)
        };
        for line in text.lines().filter_map(|line| begin(line.trim())) {
            let names = line.split('(').next().unwrap_or("");
            found.extend(names.split('|').map(|name| name.trim().to_owned()));
        }
    }
    found
}

/// A table of first versions: `cuGetProcAddress` returns what a version has.
fn versions(rows: &BTreeMap<&str, (u32, &str)>) -> String {
    let mut text = String::from("/// Functions of the catalogue, and the first version that has them.\n");
    text.push_str("pub(crate) const CATALOGUE: &[(&str, u32)] = &[\n");
    for (symbol, (since, _)) in rows {
        let _ = writeln!(text, "    ({symbol:?}, {since}),");
    }
    text.push_str("];\n");
    text
}

fn stubs(rows: &BTreeMap<&str, (u32, &str)>, written: &BTreeSet<String>, domain: &str) -> String {
    let mut text = String::from("crate::api::api! { ");
    let _ = writeln!(text, "{domain};");
    for (symbol, (_, parameters)) in rows.iter().filter(|(symbol, _)| !written.contains(**symbol)) {
        let parameters: Vec<String> = parameters
            .split("; ")
            .filter(|parameter| *parameter != "void" && !parameter.is_empty())
            .enumerate()
            .map(|(i, parameter)| {
                let kind = parameter.rsplit_once(' ').map_or(parameter, |(kind, _)| kind);
                format!("a{i}: {}", rust_type(kind))
            })
            .collect();
        let ignored: String = (0..parameters.len()).map(|i| format!("let _ = a{i}; ")).collect();
        let parameters = parameters.join(", ");
        let _ = writeln!(
            text,
            "    fn {symbol}({parameters}) {{ {ignored}Err(crate::api::Code::NOT_SUPPORTED) }}"
        );
    }
    text.push_str("}\n");
    text
}

/// The Rust type with the ABI of a C type.
fn rust_type(c: &str) -> &'static str {
    let words: Vec<&str> =
        c.split_whitespace().filter(|w| !matches!(*w, "const" | "struct" | "enum")).collect();
    let plain = words.join(" ");
    if plain.contains('*') {
        return "crate::api::Raw";
    }
    match plain.as_str() {
        "dim3" => "crate::api::Dim3",
        "cudaExtent" | "hipExtent" => "crate::api::Extent",
        "cudaPitchedPtr" | "hipPitchedPtr" => "crate::api::PitchedPointer",
        "ncclUniqueId" => "crate::api::UniqueId",
        "cudaMemLocation" | "CUmemLocation" | "CUmemLocation_v1" => "u64",
        "unsigned char" | "uint8_t" => "u8",
        "unsigned short" => "u16",
        "int" | "hipDevice_t" | "CUdevice_v1" | "CUdevice" => "i32",
        "unsigned int" | "unsigned" | "uint32_t" | "cuuint32_t" | "CUdeviceptr_v1" => "u32",
        "ncclDataType_t" | "ncclRedOp_t" | "CUpti_ActivityKind" => "u32",
        other if other.ends_with("CaptureMode") || other.ends_with("MemcpyKind") => "u32",
        "size_t" | "unsigned long long" | "uint64_t" | "cuuint64_t" | "CUdeviceptr_v2" => "u64",
        "CUmemGenericAllocationHandle_v1" => "u64",
        // Handles and functions are pointers.
        _ => "crate::api::Raw",
    }
}
