//! The files of XLA for the modules that a process compiled or loaded.
//!
//! Owns: which files are read when, and which module a function belongs to. Because: XLA registers the name and the
//! code of each kernel for debuggers, but not its module; the dump and the cache contain the same code byte for byte.
//! Does not: parse files (`hlo`), or choose between modules that have the same kernel from different operators.

mod thunks;

use std::ops::Range;
use std::sync::Arc;

use deepctx_address_space::{Folder, start_ticks};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cached_code::CachedCode;
use super::device_kernels::among;
use super::hlo::{self, Hlo};
use super::{Compiler, KernelOrigin, NoOrigin, OriginResult, Settings};
use crate::jit::{LocatedFunction, RegisteredFunction, functions};
use crate::memory::ProcessMemory;

/// Largest text of a module read.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Largest object file read.
const OBJECT_BYTES_MAX: u64 = 16 << 20;
/// Largest compressed entry of the cache read.
const ENTRY_BYTES_MAX: u64 = 32 << 20;
/// Largest entry of the cache after decompression.
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;
/// Most files read per scan; the next scan continues.
const FILES_PER_SCAN: usize = 1024;
/// Most entries of the cache read, newest first: a cache may contain the programs of years.
const ENTRIES_MAX: usize = 256;
/// Most decompressed bytes of the cache read.
const CACHE_BYTES_MAX: u64 = 256 << 20;
/// Most modules of one process.
const MODULES_MAX: usize = 1 << 14;
/// Most functions of the files kept: of all modules together, which may all have the same code.
const CODES_MAX: usize = 1 << 18;
/// Most bytes of their names.
const NAMES_BYTES_MAX: usize = 16 << 20;
/// Most modules kept of one code: beyond that it may be of further ones.
const SAME_CODE_MAX: usize = 256;
/// Most files of the dump read in all.
const FILES_MAX: usize = 1 << 16;
/// Most bytes of object files read per scan; the next scan continues.
const BYTES_PER_SCAN: usize = 256 << 20;
/// Most bytes of texts of modules read.
const TEXTS_BYTES_MAX: usize = 256 << 20;
/// Most device modules read.
const DEVICE_MODULES_MAX: usize = 1 << 12;
/// Most bytes of device modules read.
const DEVICE_BYTES_MAX: u64 = 64 << 20;
/// Shortest time between two scans of the folders.
const SCAN_INTERVAL_NS: u64 = 1_000_000_000;
/// Most neighbors of a function examined to find one that only one module has.
const NEIGHBOURS_MAX: usize = 4096;

/// Parts of file names in a dump.
const OBJECT: &str = ".obj-file.";
const TEXTS: [&str; 2] = [".cpu_after_optimizations.txt", "gpu_after_optimizations.txt"];
/// Suffix of the files of device modules: `module_0003.jit_step.sm_9.0_gpu_after_optimizations.txt`.
const DEVICE_TEXT: &str = "gpu_after_optimizations.txt";
const BINARIES: [&str; 1] = [".cpu_after_optimizations.hlo.pb"];

/// A compiled module.
#[derive(Debug)]
struct Module {
    /// Prefix of its file names in the dump; empty for a module of the cache.
    prefix: String,
    /// Names of its kernels.
    kernels: FxHashSet<String>,
    /// Parsed when first needed.
    hlo: Option<Option<Arc<Hlo>>>,
}

/// The XLA files of one process.
#[derive(Debug)]
pub(super) struct Process {
    dump: Option<Folder>,
    cache: Option<Folder>,
    modules: Vec<Module>,
    by_prefix: FxHashMap<String, usize>,
    /// Modules that contain a function, by [`crate::jit::Function::code_hash`].
    by_code: FxHashMap<u64, Vec<usize>>,
    /// Functions in `by_code` and `modules`, and bytes of their names.
    functions: usize,
    names_bytes: usize,
    /// Bytes of parsed texts.
    texts_bytes: usize,
    seen: FxHashSet<String>,
    entries_read: usize,
    bytes_read: u64,
    scanned_at_ns: Option<u64>,
    /// Functions of the cache, to be located in memory.
    cached: CachedCode,
    device: DeviceModules,
}

/// The device modules of the dump.
#[derive(Debug, Default)]
struct DeviceModules {
    modules: Vec<Hlo>,
    /// Modules that may have a kernel of a name.
    by_name: FxHashMap<String, Vec<u32>>,
    seen: FxHashSet<String>,
    bytes_read: u64,
    /// The bounds were reached: a further module may have a kernel of a name.
    incomplete: bool,
    scanned_at_ns: Option<u64>,
    /// Start of the process in seconds since 1970: older files are from another program.
    process_start: Option<i64>,
}

impl Process {
    pub(super) fn new(pid: u32, settings: &Settings) -> Self {
        let open =
            |path: &Option<_>| path.as_ref().and_then(|path: &std::path::PathBuf| Folder::open(pid, path));
        Self {
            dump: open(&settings.dump),
            cache: open(&settings.cache),
            modules: Vec::new(),
            by_prefix: FxHashMap::default(),
            by_code: FxHashMap::default(),
            functions: 0,
            names_bytes: 0,
            texts_bytes: 0,
            seen: FxHashSet::default(),
            entries_read: 0,
            bytes_read: 0,
            scanned_at_ns: None,
            cached: CachedCode::default(),
            device: DeviceModules { process_start: process_start(pid), ..DeviceModules::default() },
        }
    }

    /// The origin of a device kernel. `siblings` are kernels that were loaded with the same code: its module has all
    /// of them that any module has.
    pub(super) fn device(&mut self, time_ns: u64, name: &str, siblings: &[&str]) -> OriginResult {
        let Some(folder) = &self.dump else { return Err(NoOrigin::NoFiles) };
        self.device.scan(folder, time_ns);
        if self.device.incomplete {
            return Err(NoOrigin::Ambiguous);
        }
        let DeviceModules { modules, by_name, .. } = &self.device;
        let modules_of_siblings: Vec<_> =
            siblings.iter().filter_map(|sibling| by_name.get(*sibling)).collect();
        let candidates = by_name.get(name).map_or(&[][..], Vec::as_slice).iter();
        let matching = candidates.filter(|module| modules_of_siblings.iter().all(|of| of.contains(module)));
        let is_kernel = |other: &str| siblings.iter().any(|sibling| hlo::is_same_name(other, sibling));
        let kernels = matching.filter_map(|module| modules.get(*module as usize)?.kernel(name, &is_kernel));
        among(Compiler::Xla, &kernels.map(Arc::new).collect::<Vec<_>>())
    }

    /// The function of the cache at an address of a mapping.
    pub(super) fn cached_function(
        &mut self,
        pid: u32,
        time_ns: u64,
        mapping: Range<u64>,
        address: u64,
    ) -> Option<LocatedFunction> {
        let folder = self.cache.take()?;
        if self.start_scan(time_ns) {
            self.read_cache(&folder);
        }
        self.cache = Some(folder);
        self.cached.locate(&ProcessMemory::open(pid).ok()?, mapping, address)
    }

    /// The origin of a function of the cache.
    pub(super) fn cached_kernel(&mut self, key: u64) -> OriginResult {
        let modules = self.cached.modules_of(key).to_vec();
        let mut kernels: Vec<Arc<KernelOrigin>> = Vec::new();
        for (module, name) in modules {
            let hlo = self.hlo(module);
            let names = self.modules.get(module).map(|module| &module.kernels);
            let kernel =
                hlo.zip(names).and_then(|(hlo, names)| hlo.kernel(&name, &|other| names.contains(other)));
            kernels.extend(kernel.map(Arc::new));
        }
        let Some((first, rest)) =
            kernels.split_first().filter(|(first, rest)| rest.iter().all(|other| other.unit == first.unit))
        else {
            return among(Compiler::Xla, &kernels);
        };
        // Equal kernels of one module share this code: it may run for any of their lines.
        let mut kernel = KernelOrigin::clone(first);
        for op in rest.iter().filter_map(|other| other.ops.first()) {
            if kernel.ops.first() != Some(op) && !kernel.others.contains(op) {
                kernel.others.push(op.clone());
            }
        }
        Ok(Arc::new(kernel))
    }

    /// The origin of a function that the process registered; `registered` are all of them, in order.
    pub(super) fn kernel<'a>(
        &mut self,
        time_ns: u64,
        function: RegisteredFunction<'a>,
        registered: impl DoubleEndedIterator<Item = RegisteredFunction<'a>>,
    ) -> OriginResult {
        if self.dump.is_none() && self.cache.is_none() {
            return Err(NoOrigin::NoFiles);
        }
        if !self.by_code.contains_key(&function.code_hash) {
            self.scan(time_ns, function.code_hash);
        }
        let modules = self.by_code.get(&function.code_hash).ok_or(NoOrigin::NotFound)?.clone();
        if modules.len() >= SAME_CODE_MAX {
            return Err(NoOrigin::Ambiguous);
        }
        let mut origins: Vec<(usize, Arc<KernelOrigin>)> = Vec::new();
        for module in modules {
            if let Some(kernel) = self.hlo(module).and_then(|hlo| {
                let kernels = self.modules.get(module).map(|module| &module.kernels)?;
                hlo.kernel(function.name, &|name| kernels.contains(name))
            }) {
                origins.push((module, Arc::new(kernel)));
            }
        }
        let (_, first) = origins.first().ok_or(NoOrigin::NotFound)?;
        if origins.iter().all(|(_, kernel)| kernel == first) {
            return Ok(Arc::clone(first));
        }
        // A module registers all of its code together: the neighbors show which module it is.
        let registered: Vec<RegisteredFunction<'_>> = registered.collect();
        let at = function.order.min(registered.len());
        let before = self.unique_module(registered[..at].iter().rev());
        let after = self.unique_module(registered[at..].iter());
        let module = match (before, after) {
            (Some(before), Some(after)) if before == after => before,
            (Some(module), None) | (None, Some(module)) => module,
            _ => return Err(NoOrigin::Ambiguous),
        };
        let of_module = origins.into_iter().find(|(of, _)| *of == module);
        of_module.map(|(_, kernel)| kernel).ok_or(NoOrigin::Ambiguous)
    }

    /// The module of the first of these functions that only one module has.
    fn unique_module<'a>(
        &self,
        functions: impl Iterator<Item = &'a RegisteredFunction<'a>>,
    ) -> Option<usize> {
        functions.take(NEIGHBOURS_MAX).find_map(|function| match self.by_code.get(&function.code_hash)?[..] {
            [module] => Some(module),
            _ => None,
        })
    }

    fn hlo(&mut self, module: usize) -> Option<Arc<Hlo>> {
        let Module { prefix, hlo, .. } = self.modules.get_mut(module)?;
        if hlo.is_none() {
            let folder = self.dump.as_ref()?;
            let texts_bytes = &mut self.texts_bytes;
            let mut read = |suffix: &str| {
                let left = TEXTS_BYTES_MAX.saturating_sub(*texts_bytes) as u64;
                let text = folder.read(&format!("{prefix}{suffix}"), TEXT_BYTES_MAX.min(left))?;
                *texts_bytes += text.len();
                Some(text)
            };
            let text = TEXTS.iter().find_map(|suffix| read(suffix));
            let found = match text {
                Some(text) => hlo::parse_text(&String::from_utf8_lossy(&text)),
                None => {
                    BINARIES.iter().find_map(|suffix| hlo::find_modules(&read(suffix)?).into_iter().next())
                }
            };
            *hlo = Some(found.map(Arc::new));
        }
        hlo.clone()?
    }

    /// Reads new files: first the dump, then the cache if the dump does not have the wanted code.
    fn scan(&mut self, time_ns: u64, wanted: u64) {
        if !self.start_scan(time_ns) {
            return;
        }
        if let Some(folder) = self.dump.take() {
            self.read_dump(&folder);
            self.dump = Some(folder);
        }
        if self.by_code.contains_key(&wanted) {
            return;
        }
        if let Some(folder) = self.cache.take() {
            self.read_cache(&folder);
            self.cache = Some(folder);
        }
    }

    /// Whether another scan of the folders is due; it then counts as started.
    fn start_scan(&mut self, time_ns: u64) -> bool {
        let is_due = self.scanned_at_ns.is_none_or(|at| time_ns.saturating_sub(at) >= SCAN_INTERVAL_NS);
        if is_due {
            self.scanned_at_ns = Some(time_ns);
        }
        is_due
    }

    fn read_dump(&mut self, folder: &Folder) {
        let fresh: Vec<String> = folder
            .names()
            .into_iter()
            .filter(|name| name.contains(OBJECT) && !self.seen.contains(name))
            .collect();
        let mut bytes_read = 0;
        for name in fresh.into_iter().take(FILES_PER_SCAN) {
            if self.seen.len() >= FILES_MAX || bytes_read >= BYTES_PER_SCAN {
                break;
            }
            let Some(object) = folder.read(&name, OBJECT_BYTES_MAX) else { continue };
            bytes_read += object.len();
            let Some((prefix, _)) = name.split_once(OBJECT) else { continue };
            if let Some(module) = self.module(prefix) {
                self.add_object(module, &object);
            }
            self.seen.insert(name);
        }
    }

    fn module(&mut self, prefix: &str) -> Option<usize> {
        if let Some(module) = self.by_prefix.get(prefix) {
            return Some(*module);
        }
        let module = self.modules.len();
        (module < MODULES_MAX).then(|| {
            self.modules.push(Module { prefix: prefix.to_owned(), kernels: FxHashSet::default(), hlo: None });
            self.by_prefix.insert(prefix.to_owned(), module);
            module
        })
    }

    fn add_object(&mut self, module: usize, object: &[u8]) {
        for function in functions(object) {
            if self.functions >= CODES_MAX || self.names_bytes >= NAMES_BYTES_MAX {
                return;
            }
            self.functions += 1;
            self.names_bytes += function.name.len();
            let modules = self.by_code.entry(function.code_hash).or_default();
            if modules.len() < SAME_CODE_MAX && !modules.contains(&module) {
                modules.push(module);
            }
            self.modules[module].kernels.insert(function.name);
        }
    }

    /// Reads entries of the cache, newest first. All of them count: another module may have the same code.
    fn read_cache(&mut self, folder: &Folder) {
        let mut fresh: Vec<(i64, String)> = folder
            .names()
            .into_iter()
            .filter(|name| name.ends_with("-cache") && !self.seen.contains(name))
            .filter_map(|name| Some((folder.modified(&name)?, name)))
            .collect();
        fresh.sort_unstable_by(|a, b| b.cmp(a));
        for (_, name) in fresh {
            if self.entries_read >= ENTRIES_MAX
                || self.bytes_read >= CACHE_BYTES_MAX
                || self.modules.len() >= MODULES_MAX
            {
                break;
            }
            self.entries_read += 1;
            let entry = folder.read(&name, ENTRY_BYTES_MAX).and_then(|packed| decompressed(&packed));
            self.seen.insert(name);
            let Some(entry) = entry else { continue };
            self.bytes_read += entry.len() as u64;
            // An executable has one module.
            let Some(hlo) = hlo::find_modules(&entry).into_iter().next() else { continue };
            let module = self.modules.len();
            self.modules.push(Module {
                prefix: String::new(),
                kernels: FxHashSet::default(),
                hlo: Some(Some(Arc::new(hlo))),
            });
            for object in hlo::objects(&entry) {
                self.add_object(module, object);
                self.cached.add(module, object);
            }
        }
    }
}

impl DeviceModules {
    /// Reads new modules.
    fn scan(&mut self, folder: &Folder, time_ns: u64) {
        if self.incomplete
            || self.scanned_at_ns.is_some_and(|at| time_ns.saturating_sub(at) < SCAN_INTERVAL_NS)
        {
            return;
        }
        self.scanned_at_ns = Some(time_ns);
        for name in folder.names() {
            if !name.ends_with(DEVICE_TEXT) || self.seen.contains(&name) {
                continue;
            }
            let own = folder.modified(&name).zip(self.process_start).is_some_and(|(at, start)| at >= start);
            let text = if own { folder.read(&name, TEXT_BYTES_MAX) } else { None };
            if self.seen.len() >= DEVICE_MODULES_MAX || self.bytes_read >= DEVICE_BYTES_MAX {
                self.incomplete = true;
                return;
            }
            if let Some(text) = text {
                self.bytes_read += text.len() as u64;
                self.seen.insert(name);
                let Some(hlo) = hlo::parse_text(&String::from_utf8_lossy(&text)) else { continue };
                let number = self.modules.len() as u32;
                for name in hlo.device_names() {
                    let modules = self.by_name.entry(name).or_default();
                    if modules.last() != Some(&number) {
                        modules.push(number);
                    }
                }
                self.modules.push(hlo);
            }
        }
    }
}

/// The start of a process, in seconds since 1970.
fn process_start(pid: u32) -> Option<i64> {
    let ticks = start_ticks(pid)?;
    let boot = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: i64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    boot.checked_add(i64::try_from(ticks.checked_div(rustix::param::clock_ticks_per_second())?).ok()?)
}

/// The content of an entry of JAX's cache, which is compressed by zlib or zstd.
fn decompressed(packed: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    if packed.starts_with(b"\x28\xb5\x2f\xfd") {
        let reader = ruzstd::decoding::StreamingDecoder::new(packed).ok()?;
        reader.take(DECOMPRESSED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    } else {
        flate2::read::ZlibDecoder::new(packed).take(DECOMPRESSED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module whose entry applies fusions of these names, each of an operator of the same name from a line.
    pub(super) fn module(name: &str, kernels: &[(&str, u32)]) -> String {
        let row = |(kernel, line): &(&str, u32)| {
            format!(
                "  %{kernel} = f32[8]{{0}} fusion(%x), kind=kLoop, calls=%fused_{kernel}, \
                 metadata={{op_name=\"jit(f)/{kernel}\" source_file=\"/srv/net.py\" source_line={line}}}\n"
            )
        };
        let rows: String = kernels.iter().map(row).collect();
        format!(
            "HloModule {name}, is_scheduled=true\n\nENTRY %main (x: f32[8]) -> f32[8] {{\n  %x = f32[8]{{0}} parameter(0)\n{rows}}}\n"
        )
    }

    fn dump(modules: &[(&str, &[(&str, u32)])]) -> (tempfile::TempDir, Process) {
        let folder = tempfile::tempdir().unwrap();
        for (n, (name, kernels)) in modules.iter().enumerate() {
            let path = format!("module_{n:04}.{name}.sm_9.0_gpu_after_optimizations.txt");
            std::fs::write(folder.path().join(path), module(name, kernels)).unwrap();
        }
        let settings = Settings { dump: Some(folder.path().to_owned()), ..Settings::default() };
        let process = Process::new(std::process::id(), &settings);
        (folder, process)
    }

    /// Checks the unit and the line of a kernel that was loaded with others.
    fn check(modules: &[(&str, &[(&str, u32)])], name: &str, siblings: &[&str], expect: (&str, Option<u32>)) {
        let (_folder, mut process) = dump(modules);
        let kernel = process.device(0, name, siblings).unwrap();
        let line = kernel.stack().first().map(|line| line.line);
        assert_eq!((kernel.unit_label().as_str(), line), expect, "{name} {siblings:?}");
    }

    #[test]
    fn a_device_kernel_belongs_to_the_module_of_its_siblings() {
        let f: (&str, &[_]) = ("jit_f", &[("loop_add_fusion", 3), ("loop_exp_fusion.1", 4)]);
        let g: (&str, &[_]) = ("jit_g", &[("loop_add_fusion", 7), ("input_reduce_fusion", 8)]);
        check(&[f], "loop_exp_fusion_1", &[], ("[xla jit_f]", Some(4)));
        check(&[f, g], "input_reduce_fusion", &["loop_add_fusion"], ("[xla jit_g]", Some(8)));
        check(&[f, g], "loop_add_fusion", &[], ("[xla jit_f or jit_g]", None));
        check(&[f, g], "loop_add_fusion", &["loop_exp_fusion_1"], ("[xla jit_f]", Some(3)));
        // Kernels of no module (the runtime's own) do not matter.
        check(&[f, g], "loop_add_fusion", &["input_reduce_fusion", "delay_kernel"], ("[xla jit_g]", Some(7)));
        check(&[f, f], "loop_add_fusion", &[], ("[xla jit_f]", Some(3)));
        // A kernel may be shared by instructions whose own kernels are not loaded.
        let shared: (&str, &[_]) = ("jit_h", &[("loop_add_fusion", 3), ("loop_add_fusion.1", 4)]);
        check(&[shared], "loop_add_fusion", &["loop_add_fusion_1"], ("[xla jit_h]", Some(3)));
        let (_folder, mut process) = dump(&[shared]);
        let kernel = process.device(0, "loop_add_fusion", &[]).unwrap();
        assert_eq!((kernel.stack().len(), kernel.others.len()), (0, 1));
        assert_eq!(process.device(0, "gemm", &[]), Err(NoOrigin::NotFound));
    }

    #[test]
    fn thousands_of_modules_of_the_same_code_fill_no_memory() {
        let (_folder, mut process) = dump(&[]);
        let own = std::fs::read("/proc/self/exe").unwrap();
        let all = functions(&own).len();
        assert!(all > 1000, "this program has functions");
        for module in 0..(2 * CODES_MAX / all).min(2 * SAME_CODE_MAX) {
            let number = process.module(&format!("module_{module}")).unwrap();
            process.add_object(number, &own);
        }
        let names = |module: &Module| module.kernels.iter().map(String::len).sum::<usize>();
        assert!(process.modules.iter().map(names).sum::<usize>() < NAMES_BYTES_MAX + 1024);
        assert!(process.modules.iter().map(|module| module.kernels.len()).sum::<usize>() <= CODES_MAX);
        assert!(process.by_code.values().all(|modules| modules.len() <= SAME_CODE_MAX));
    }

    #[test]
    fn files_older_than_the_process_are_ignored() {
        let (folder, mut process) = dump(&[("jit_f", &[("loop_add_fusion", 3)])]);
        let start = process.device.process_start.unwrap();
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        assert!((now - 3600..=now).contains(&start), "{start} {now}");
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let before = std::time::UNIX_EPOCH + std::time::Duration::from_secs(start as u64 - 10);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
        assert_eq!(process.device(0, "loop_add_fusion", &[]), Err(NoOrigin::NotFound));
    }
}
