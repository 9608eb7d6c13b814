use super::*;

const CUBIN: &[u8] = include_bytes!("../../../tests/fixtures/cubin/cuda13.cubin");

/// This process, with device code in its own memory and objects like those of a driver.
struct Scene {
    _image: Vec<u64>,
    objects: Vec<[u64; 64]>,
    _names: Vec<std::ffi::CString>,
}

fn scene(names: &[&str]) -> Scene {
    let mut image: Vec<u64> = Vec::new();
    for bytes in CUBIN.chunks(8) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        image.push(u64::from_le_bytes(word));
    }
    let names: Vec<_> = names.iter().map(|name| std::ffi::CString::new(*name).unwrap()).collect();
    let objects = names
        .iter()
        .map(|name| {
            let mut object = [0; 64];
            object[0] = 0x7;
            object[5] = name.as_ptr() as u64;
            object
        })
        .collect();
    Scene { _image: image, objects, _names: names }
}

#[test]
fn names_are_checked_against_code_in_memory() {
    let scene = scene(&["_Z4gemmPfi", "_Z4reluPf", "_Z7missingPf"]);
    let handles: Vec<u64> = scene.objects.iter().map(|object| object.as_ptr() as u64).collect();
    let mut process = ProcessKernels::open(std::process::id()).unwrap();
    let mut found = process.identify(&handles, &mut CodeReader::default());
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let facts = |registers, shared| KernelFacts {
        arch: Some(80),
        registers: Some(registers),
        static_shared: Some(shared),
    };
    assert_eq!(
        found,
        [
            NamedHandle { handle: handles[0], name: "_Z4gemmPfi".into(), facts: facts(10, 1024) },
            NamedHandle { handle: handles[1], name: "_Z4reluPf".into(), facts: facts(6, 0) },
        ]
    );
    assert!(process.identify(&[0, 1, u64::MAX, handles[2]], &mut CodeReader::default()).is_empty());
}

#[test]
fn addresses_in_files_without_device_code_are_not_stubs() {
    let handle = names_are_checked_against_code_in_memory as *const () as u64;
    let mut process = ProcessKernels::open(std::process::id()).unwrap();
    assert!(process.identify(&[handle], &mut CodeReader::default()).is_empty());
}
