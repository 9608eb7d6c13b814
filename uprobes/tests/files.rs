//! Real files, made by the C compiler: versions, static symbols, stripped ones, deleted ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use deepctx_events::{Event, Family, TensorEvent};
use deepctx_uprobes::catalogue::user;
use deepctx_uprobes::locate::elf::Image;
use deepctx_uprobes::locate::libraries;
use deepctx_uprobes::locate::resolve::{linked_runtime, resolve};
use deepctx_uprobes::{
    Contents, Kernel, Layers, Library, NoProbe, PlannedFile, Planner, ProbeRequest, Version, rows,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const KERNEL: Kernel = Kernel { version: (6, 1) };

/// Compiles a shared object. `None`, and a reason, where there is no compiler; setup installs one.
fn compile(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> Option<PathBuf> {
    let (input, output) = (folder.join("input.c"), folder.join(name));
    fs::write(&input, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&output).arg(&input).args(arguments);
    match compiler.output() {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "cc: {error}");
            println!("skipped: there is no C compiler: {error}");
            return None;
        }
    }
    Some(output)
}

fn plan(path: &Path, rows: &str, layers: Layers) -> Option<PlannedFile> {
    let mut planner = Planner::new(user::parse(rows).unwrap(), layers, KERNEL);
    planner.add_libraries(vec![Library::of_file(path).unwrap()]);
    planner.planned().first().cloned()
}

fn because(planned: &PlannedFile, symbol: &str) -> NoProbe {
    planned.missing.iter().find(|missing| missing.symbol == symbol).unwrap().because
}

#[test]
fn driver_is_found_by_name_and_reports_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int cuLaunchKernel(void *f) { return f != 0; }
        int cuLaunchKernel_ptsz(void *f) __attribute__((alias(\"cuLaunchKernel\")));
        int cuLaunchKernelEx(void *c, void *f) { return c == f; }
        int cuMemAlloc_v2; static int resolved(void) { return 1; }
        static void *choose(void) { return resolved; }
        int cuCtxSynchronize(void) __attribute__((ifunc(\"choose\")));";
    let Some(path) = compile(folder.path(), "libcuda.so.1", source, &[]) else { return };
    let planned = plan(&path, "", Layers::Lowest).unwrap();
    assert_eq!(planned.contents, Contents::Library(Family::CudaDriver));
    let found: Vec<_> = planned.sites.iter().map(|site| (&*site.symbol, &site.aliases[..])).collect();
    assert!(found.contains(&("cuLaunchKernel", &["cuLaunchKernel_ptsz".to_owned()][..])), "{found:?}");
    assert_eq!(found.len(), 2);
    let library = Version(11, 6);
    assert_eq!(because(&planned, "cuLibraryGetKernel"), NoProbe::NewerThanLibrary { library });
    assert_eq!(because(&planned, "cuMemFree_v2"), NoProbe::NotExported);
    assert_eq!(because(&planned, "cuCtxSynchronize"), NoProbe::Indirect);
    // A variable of that name is no function.
    assert_eq!(because(&planned, "cuMemAlloc_v2"), NoProbe::NotCode);
}

#[test]
fn a_file_offset_leads_to_the_code() {
    let folder = tempfile::tempdir().unwrap();
    let source = "__asm__(\".globl cuLaunchKernel\\n.type cuLaunchKernel,@function\\ncuLaunchKernel:\\n\"
        \".byte 0x81,0x3d,1,2,3,4,0,0xba,0x1c,0x32,0x74,0x0c,0xff,0x25,0,0,0,0\\n.size cuLaunchKernel,18\\n\");";
    let Some(path) = compile(folder.path(), "libcuda.so.1", source, &["-Wl,-z,separate-code"]) else {
        return;
    };
    let planned = plan(&path, "", Layers::Lowest).unwrap();
    let [site] = &planned.sites[..] else { panic!("{:?}", planned.sites) };
    let bytes = fs::read(&path).unwrap();
    let at = usize::try_from(site.offset.0).unwrap();
    assert_eq!((site.offset.0 - site.entry.0, &bytes[at..at + 2]), (10, &[0x74, 0x0c][..]));
}

#[test]
fn parameters_of_another_major_version_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int cudaMemPrefetchAsync(void) { return 1; } int cudaLaunchKernel(void) { return 2; }";
    let script = folder.path().join("versions");
    fs::write(&script, "libcudart.so.13 { global: cuda*; };").unwrap();
    let script = format!("-Wl,--version-script={}", script.display());
    let Some(path) = compile(folder.path(), "libcudart.so.13", source, &[&script]) else { return };
    let planned = plan(&path, "", Layers::All).unwrap();
    let site = planned.sites.iter().find(|site| site.symbol == "cudaMemPrefetchAsync").unwrap();
    assert_eq!(site.version.as_deref(), Some("libcudart.so.13"));
    assert_eq!(site.row.names[0].major, Some(13));
    let other = planned.missing.iter().filter(|missing| missing.symbol == "cudaMemPrefetchAsync");
    assert_eq!(other.map(|missing| missing.because).collect::<Vec<_>>(), [NoProbe::OtherMajor]);
    // What the driver sees again is not counted here too, unless that is requested.
    let planned = plan(&path, "", Layers::Lowest).unwrap();
    assert_eq!(because(&planned, "cudaLaunchKernel"), NoProbe::SeenAgainIn(Family::CudaDriver));
}

#[test]
fn usdt_probes_lead_to_their_very_instructions_or_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let source = |arguments: &str| {
        format!(
            "unsigned short counter __attribute__((section(\".probes\"), visibility(\"hidden\"))) = 0;
            #define MARK(name, arguments) __asm__ volatile(\"990: nop\\n.pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n\" \\
                \".balign 4\\n.4byte 992f-991f, 994f-993f, 3\\n991: .asciz \\\"stapsdt\\\"\\n992: .balign 4\\n\" \\
                \"993: .8byte 990b\\n.8byte 0\\n.8byte counter\\n.asciz \\\"pytorch\\\"\\n.asciz \\\"\" name \"\\\"\\n\" \\
                \".asciz \\\"\" arguments \"\\\"\\n994: .balign 4\\n.popsection\\n\")
            void give(void) {{ MARK(\"malloc\", \"-8@%rbp -1@%al -8@-56(%rbp) -8@%r12\"); }}
            void take(void) {{ MARK(\"free\", \"{arguments}\"); }}"
        )
    };
    let look = |path: &Path| {
        let request = ProbeRequest { memory: true, ..ProbeRequest::default() };
        let mut planner = Planner::new(Vec::new(), Layers::Lowest, KERNEL).with_request(true, request);
        planner.add_libraries(vec![Library::of_file(path).unwrap()]);
        planner.planned().first().cloned().unwrap()
    };
    let Some(path) = compile(folder.path(), "libc10_cuda.so", &source("-8@%rdi"), &[]) else { return };
    let planned = look(&path);
    let bytes = fs::read(&path).unwrap();
    let found: Vec<_> = planned.sites.iter().map(|site| (&*site.symbol, site.row.event)).collect();
    assert!(found.contains(&("pytorch:free", Event::Tensor(TensorEvent::Free))), "{found:?}");
    // Nothing in it reports, so the mark is all there is.
    assert!(
        found.contains(&("pytorch:malloc", Event::Tensor(TensorEvent::Alloc))) && found.len() == 2,
        "{found:?}"
    );
    for site in &planned.sites {
        let counter = usize::try_from(site.counter.unwrap().0).unwrap();
        assert_eq!(bytes[usize::try_from(site.offset.0).unwrap()], 0x90, "{}", site.symbol);
        assert_eq!(bytes[counter..counter + 2], [0, 0], "{}", site.symbol);
    }
    let malloc = planned.sites.iter().find(|site| site.symbol == "pytorch:malloc").unwrap();
    let places: Vec<_> =
        malloc.row.arguments().iter().map(|argument| argument.location.to_string()).collect();
    assert_eq!(places, ["rbp", "rax", "[rbp-56]"]);

    // Where one cannot be read, none is.
    let Some(path) = compile(folder.path(), "libc10_cuda.so", &source("-8@$5"), &[]) else { return };
    let planned = look(&path);
    assert_eq!((planned.sites.len(), because(&planned, "pytorch:free")), (0, NoProbe::NotCalibrated));
    let Some(path) = compile(folder.path(), "libc10_cuda.so", "int give(void) { return 1; }", &[]) else {
        return;
    };
    assert_eq!(because(&look(&path), "pytorch:malloc"), NoProbe::NotMarked);
}

#[test]
fn statically_linked_runtime_is_found_unless_stripped() {
    let folder = tempfile::tempdir().unwrap();
    let source = "__attribute__((section(\".nv_fatbin\"), used)) static const char code[8] = {1};
        __attribute__((visibility(\"hidden\"), noinline, used)) void *__cudaRegisterFatBinary(void *f) { return f; }
        __attribute__((visibility(\"hidden\"), noinline, used)) int cudaMemPrefetchAsync(void) { return 1; }
        int run(void *p) { return __cudaRegisterFatBinary(p) != 0; }";
    let Some(path) = compile(folder.path(), "libextension.so", source, &[]) else { return };
    let planned = plan(&path, "", Layers::All).unwrap();
    assert_eq!(planned.contents, Contents::RuntimeInside);
    assert!(planned.sites.iter().any(|site| site.symbol == "__cudaRegisterFatBinary"));
    assert_eq!(because(&planned, "cudaMemPrefetchAsync"), NoProbe::VersionUnknown);

    let Some(path) = compile(folder.path(), "libstripped.so", source, &["-s"]) else { return };
    let planned = plan(&path, "", Layers::All).unwrap();
    assert_eq!((planned.contents, planned.sites.len()), (Contents::RuntimeInside, 0));
    assert!(planned.missing.iter().all(|missing| missing.because == NoProbe::Stripped));

    let Some(path) = compile(folder.path(), "libplain.so", "int f(void) { return 1; }", &[]) else { return };
    assert_eq!(plan(&path, "", Layers::All), None);
}

#[test]
fn user_rows_are_found_in_the_libraries_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int xyzEnqueue(void *q, int n) { return q != 0 && n; }";
    let Some(path) = compile(folder.path(), "libxyz.so.3", source, &[]) else { return };
    let rows = "[[probe]]\nlibrary = \"libxyz.so*\"\nsymbol = \"xyzEnqueue\"\nevent = \"launch\"\n\
                arguments = [{ name = \"stream\", type = \"pointer\" }, { name = \"n\", type = \"i32\" }]\n\
                [[probe]]\nlibrary = \"libxyz.so*\"\nsymbol = \"xyzFlush\"\n\
                [[probe]]\nlibrary = \"libother.so*\"\nsymbol = \"xyzEnqueue\"\n";
    let planned = plan(&path, rows, Layers::Lowest).unwrap();
    assert_eq!(planned.contents, Contents::User);
    let [site] = &planned.sites[..] else { panic!("{:?}", planned.sites) };
    assert_eq!((&*site.symbol, site.row.arguments().len()), ("xyzEnqueue", 2));
    assert_eq!(because(&planned, "xyzFlush"), NoProbe::NotExported);
    assert_eq!(planned.missing.len(), 1);
}

#[test]
fn a_library_that_is_no_elf_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.1");
    fs::write(&path, "INPUT(libcuda.so.550)\n").unwrap();
    let planned = plan(&path, "", Layers::Lowest).unwrap();
    assert!(planned.sites.is_empty() && !planned.missing.is_empty());
    assert!(planned.missing.iter().all(|missing| missing.because.reason().key == "not-elf"));
}

#[test]
fn a_file_of_an_ended_process_is_searched_again() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int cuLaunchKernel(void *f) { return f != 0; }";
    let Some(path) = compile(folder.path(), "libcuda.so.1", source, &[]) else { return };
    let living = Library::of_file(&path).unwrap();
    let ended = Library { pid: u32::MAX, ..living.clone() };
    let mut planner = Planner::new(Vec::new(), Layers::Lowest, KERNEL);
    let id = planner.add_libraries(vec![ended.clone()])[0];
    let planned = planner.get(id).unwrap();
    assert!(planned.sites.is_empty() && planned.version.is_none());
    planner.shelve(id);
    assert!(planner.add_libraries(vec![ended]).is_empty(), "not again through that process");
    let ids = planner.add_libraries(vec![living]);
    let planned = planner.get(*ids.first().expect("it is searched")).unwrap();
    assert!(planned.version.is_some() && !planned.sites.is_empty(), "{planned:?}");
}

#[test]
fn a_file_that_nobody_can_open_is_planned_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.1");
    // Refused to every process, as are files on a user's file server.
    fs::create_dir(&path).unwrap();
    let of_one = Library::of_file(&path).unwrap();
    let of_other = Library { pid: 1, ..of_one.clone() };
    let mut planner = Planner::new(Vec::new(), Layers::Lowest, KERNEL);
    let id = planner.add_libraries(vec![of_one])[0];
    assert!(planner.get(id).unwrap().version.is_none());
    planner.shelve(id);
    assert!(planner.add_libraries(vec![of_other]).is_empty(), "not again through another process");
}

#[test]
fn a_file_that_was_deleted_is_reached_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("sleeper");
    fs::copy("/bin/sleep", &copy).unwrap();
    let mut child = Command::new(&copy).arg("60").spawn().unwrap();
    fs::remove_file(&copy).unwrap();
    // `spawn` returns while the kernel still maps the program.
    let look = || {
        let libraries = libraries::of_process(child.id()).unwrap_or_default();
        let library = libraries.into_iter().find(|library| library.mapping.path() == copy)?;
        Some((library.open(), library.attach_path()))
    };
    let found = std::iter::repeat_with(|| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        look()
    })
    .take(3000)
    .find_map(|found| found);
    child.kill().unwrap();
    child.wait().unwrap();
    let (opened, attach) = found.unwrap();
    assert!(attach.starts_with(format!("/proc/{}/map_files", child.id())), "{}", attach.display());
    match opened {
        Ok(file) => assert!(file.metadata().unwrap().len() > 0),
        Err(reason) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{reason}");
            println!("skipped: map_files can be followed only with privileges: {reason}");
        }
    }
}

#[test]
fn a_damaged_file_has_probes_inside_it_or_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int cuLaunchKernel(void *f) { return f != 0; } int cudaMalloc(void) { return 1; }
        __attribute__((visibility(\"hidden\"), used)) int cuMemAlloc_v2(void *p) { return p == 0; }";
    let script = folder.path().join("versions");
    fs::write(&script, "libcudart.so.13 { global: cu*; };").unwrap();
    let script = format!("-Wl,--version-script={}", script.display());
    let Some(path) = compile(folder.path(), "libcuda.so.1", source, &[&script]) else { return };
    let whole = fs::read(&path).unwrap();
    let places = proptest::sample::select(damage_points(&whole));
    let damage = proptest::collection::vec((places, any::<u64>(), 1usize..=8), 1..6);
    let cut = prop_oneof![4 => Just(whole.len()), 1 => 0..whole.len()];
    let mut runner = TestRunner::new(Config { cases: 3000, failure_persistence: None, ..Config::default() });
    let checked = runner.run(&(damage, cut), |(damage, cut)| {
        let mut bytes = whole.clone();
        for (at, value, length) in damage {
            let end = (at + length).min(bytes.len());
            let from = value.to_le_bytes();
            bytes[at..end].copy_from_slice(&from[..end - at]);
        }
        bytes.truncate(cut);
        if let Ok(image) = Image::parse(&bytes[..]) {
            linked_runtime(&image);
            for resolution in resolve(&image, rows(), KERNEL) {
                let functions = resolution.functions.unwrap_or_default();
                prop_assert!(functions.iter().all(|function| function.probe().0 < bytes.len() as u64));
            }
        }
        Ok(())
    });
    checked.unwrap();
}

/// Where damage hurts: the headers, and every section that is not code.
fn damage_points(file: &[u8]) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(*file[at..].first_chunk().unwrap());
    let headers = usize::try_from(word(40)).unwrap();
    let mut points: Vec<usize> = (16..64 + 56 * 4).collect();
    points.extend(headers..file.len());
    for header in (headers..file.len() - 63).step_by(64) {
        let begin = usize::try_from(word(header + 24)).unwrap();
        let length = usize::try_from(word(header + 32)).unwrap().min(256);
        points.extend((begin..begin + length).filter(|at| *at < file.len()));
    }
    points
}
