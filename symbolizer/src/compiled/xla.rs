//! What XLA left of the modules that a process compiled or loaded.
//!
//! Owns: which files are read when, and which module a piece of code belongs to. Because: XLA tells debuggers the name and the
//! code of each kernel, but not the module; the dump and the cache have the same code byte for byte. Does not: parse
//! (`hlo`), or decide between modules that have the same kernel and mean different things by it.

mod steps;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::device::among;
use super::folder::Folder;
use super::hlo::{self, Hlo};
use super::loaded::Loaded;
use super::{Answer, Compiler, Kernel, NoKernel, Settings};
use crate::jit::{Found, Piece, functions};
use crate::python::ProcessMemory;

/// Largest text of a module that is read.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Largest object file that is read.
const OBJECT_BYTES_MAX: u64 = 16 << 20;
/// Largest entry of the cache that is read, packed.
const ENTRY_BYTES_MAX: u64 = 32 << 20;
/// Largest entry of the cache, unpacked.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;
/// Most files read at one look; the next look goes on.
const FILES_TOGETHER: usize = 1024;
/// Most entries of the cache read, the newest first: a cache holds the programs of years.
const ENTRIES_MAX: usize = 256;
/// Most bytes of the cache read, unpacked.
const CACHE_BYTES_MAX: u64 = 256 << 20;
/// Most modules of one process.
const UNITS_MAX: usize = 1 << 14;
/// Most pieces of code that are remembered of the files.
const CODES_MAX: usize = 1 << 18;
/// Most modules for devices that are looked at, and most bytes of them.
const DEVICE_MODULES_MAX: usize = 1 << 12;
/// See [`DEVICE_MODULES_MAX`].
const DEVICE_BYTES_MAX: u64 = 64 << 20;
/// Shortest time between two looks at the folders.
const LOOK_NS: u64 = 1_000_000_000;
/// How far the neighbours of a piece are looked at for one that only one module has.
const NEIGHBOURS_MAX: usize = 4096;

/// Parts of the names of files in a dump.
const OBJECT: &str = ".obj-file.";
const TEXTS: [&str; 2] = [".cpu_after_optimizations.txt", "gpu_after_optimizations.txt"];
/// End of the names of modules for devices: `module_0003.jit_step.sm_9.0_gpu_after_optimizations.txt`.
const DEVICE_TEXT: &str = "gpu_after_optimizations.txt";
const BINARIES: [&str; 1] = [".cpu_after_optimizations.hlo.pb"];

/// A module of which something is known.
#[derive(Debug)]
struct Unit {
    /// Beginning of its files' names in the dump.
    prefix: String,
    /// Names of its kernels.
    kernels: FxHashSet<String>,
    /// Read when it is first asked for.
    hlo: Option<Option<Arc<Hlo>>>,
}

/// What is known of one process.
#[derive(Debug)]
pub(super) struct Process {
    dump: Option<Folder>,
    cache: Option<Folder>,
    units: Vec<Unit>,
    by_prefix: FxHashMap<String, usize>,
    /// Modules that have a function, by [`crate::jit::Function::code`].
    by_code: FxHashMap<u64, Vec<usize>>,
    seen: FxHashSet<String>,
    entries_read: usize,
    bytes_read: u64,
    looked_at_ns: Option<u64>,
    /// Functions of the cache, to be found in memory.
    loaded: Loaded,
    device: Device,
}

/// Modules for devices, in the dump.
#[derive(Debug, Default)]
struct Device {
    modules: Vec<Hlo>,
    /// Which modules may have a kernel of a name.
    by_name: FxHashMap<String, Vec<u32>>,
    seen: FxHashSet<String>,
    bytes_read: u64,
    /// There was more than is read: another module may have a kernel of a name.
    too_much: bool,
    looked_at_ns: Option<u64>,
    /// When the process began, in seconds since 1970: what was dumped before is another program's.
    began: Option<i64>,
}

impl Process {
    pub(super) fn new(pid: u32, settings: &Settings) -> Self {
        let open =
            |path: &Option<_>| path.as_ref().and_then(|path: &std::path::PathBuf| Folder::open(pid, path));
        Self {
            dump: open(&settings.dump),
            cache: open(&settings.cache),
            units: Vec::new(),
            by_prefix: FxHashMap::default(),
            by_code: FxHashMap::default(),
            seen: FxHashSet::default(),
            entries_read: 0,
            bytes_read: 0,
            looked_at_ns: None,
            loaded: Loaded::default(),
            device: Device { began: began(pid), ..Device::default() },
        }
    }

    /// What a kernel of a device was compiled from. `siblings` are kernels that came with the same code: its module has all
    /// of them that any module has.
    pub(super) fn device(&mut self, time_ns: u64, name: &str, siblings: &[&str]) -> Answer {
        let Some(folder) = &self.dump else { return Err(NoKernel::NoFiles) };
        self.device.look(folder, time_ns);
        if self.device.too_much {
            return Err(NoKernel::Ambiguous);
        }
        let Device { modules, by_name, .. } = &self.device;
        let together: Vec<_> = siblings.iter().filter_map(|sibling| by_name.get(*sibling)).collect();
        let having = by_name.get(name).map_or(&[][..], Vec::as_slice).iter();
        let fits = having.filter(|module| together.iter().all(|have| have.contains(module)));
        let is_kernel = |other: &str| siblings.iter().any(|sibling| hlo::is_same_name(other, sibling));
        let kernels = fits.filter_map(|module| modules.get(*module as usize)?.kernel(name, &is_kernel));
        among(Compiler::Xla, &kernels.map(Arc::new).collect::<Vec<_>>())
    }

    /// The function of the cache at an address of a mapping from `begin` to `end`.
    pub(super) fn loaded(
        &mut self,
        pid: u32,
        time_ns: u64,
        mapping: [u64; 2],
        address: u64,
    ) -> Option<Found> {
        let folder = self.cache.take()?;
        if self.may_look(time_ns) {
            self.read_cache(&folder);
        }
        self.cache = Some(folder);
        self.loaded.find(&ProcessMemory::open(pid).ok()?, mapping, address)
    }

    /// The kernel of a function that was found so.
    pub(super) fn loaded_kernel(&mut self, number: u64) -> Answer {
        let of = self.loaded.of(number).to_vec();
        let mut kernels: Vec<Arc<Kernel>> = Vec::new();
        for (unit, name) in of {
            let hlo = self.hlo(unit);
            let names = self.units.get(unit).map(|unit| &unit.kernels);
            let kernel =
                hlo.zip(names).and_then(|(hlo, names)| hlo.kernel(&name, &|other| names.contains(other)));
            kernels.extend(kernel.map(Arc::new));
        }
        let Some((first, rest)) =
            kernels.split_first().filter(|(first, rest)| rest.iter().all(|other| other.unit == first.unit))
        else {
            return among(Compiler::Xla, &kernels);
        };
        // Equal kernels of one module: it may be working for any of their lines.
        let mut kernel = Kernel::clone(first);
        for op in rest.iter().filter_map(|other| other.ops.first()) {
            if kernel.ops.first() != Some(op) && !kernel.others.contains(op) {
                kernel.others.push(op.clone());
            }
        }
        Ok(Arc::new(kernel))
    }

    /// The kernel of a function that the process registered; `pieces` are all of them in order.
    pub(super) fn kernel<'a>(
        &mut self,
        time_ns: u64,
        piece: Piece<'a>,
        pieces: impl DoubleEndedIterator<Item = Piece<'a>>,
    ) -> Answer {
        if self.dump.is_none() && self.cache.is_none() {
            return Err(NoKernel::NoFiles);
        }
        if !self.by_code.contains_key(&piece.code) {
            self.look(time_ns, piece.code);
        }
        let units = self.by_code.get(&piece.code).ok_or(NoKernel::NotThere)?.clone();
        let mut answers: Vec<(usize, Arc<Kernel>)> = Vec::new();
        for unit in units {
            if let Some(kernel) = self.hlo(unit).and_then(|hlo| {
                let kernels = self.units.get(unit).map(|unit| &unit.kernels)?;
                hlo.kernel(piece.name, &|name| kernels.contains(name))
            }) {
                answers.push((unit, Arc::new(kernel)));
            }
        }
        let (_, first) = answers.first().ok_or(NoKernel::NotThere)?;
        if answers.iter().all(|(_, kernel)| kernel == first) {
            return Ok(Arc::clone(first));
        }
        // A module registers all its code together: what stands before and after says which one it is.
        let pieces: Vec<Piece<'_>> = pieces.collect();
        let at = piece.order.min(pieces.len());
        let before = self.certain(pieces[..at].iter().rev());
        let after = self.certain(pieces[at..].iter());
        let unit = match (before, after) {
            (Some(before), Some(after)) if before == after => before,
            (Some(unit), None) | (None, Some(unit)) => unit,
            _ => return Err(NoKernel::Ambiguous),
        };
        let of_unit = answers.into_iter().find(|(of, _)| *of == unit);
        of_unit.map(|(_, kernel)| kernel).ok_or(NoKernel::Ambiguous)
    }

    /// The module of the first of these pieces that only one module has.
    fn certain<'a>(&self, pieces: impl Iterator<Item = &'a Piece<'a>>) -> Option<usize> {
        pieces.take(NEIGHBOURS_MAX).find_map(|piece| match self.by_code.get(&piece.code)?[..] {
            [unit] => Some(unit),
            _ => None,
        })
    }

    fn hlo(&mut self, unit: usize) -> Option<Arc<Hlo>> {
        let Unit { prefix, hlo, .. } = self.units.get_mut(unit)?;
        if hlo.is_none() {
            let folder = self.dump.as_ref()?;
            let read = |suffix: &str| folder.read(&format!("{prefix}{suffix}"), TEXT_BYTES_MAX);
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

    /// Reads what is new in the folders: first the dump, and the cache if that does not have the wanted code.
    fn look(&mut self, time_ns: u64, wanted: u64) {
        if !self.may_look(time_ns) {
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

    /// Whether the last look at the folders is long enough ago for another one, which is taken now.
    fn may_look(&mut self, time_ns: u64) -> bool {
        let may = self.looked_at_ns.is_none_or(|at| time_ns.saturating_sub(at) >= LOOK_NS);
        if may {
            self.looked_at_ns = Some(time_ns);
        }
        may
    }

    fn read_dump(&mut self, folder: &Folder) {
        let fresh: Vec<String> = folder
            .names()
            .into_iter()
            .filter(|name| name.contains(OBJECT) && !self.seen.contains(name))
            .collect();
        for name in fresh.into_iter().take(FILES_TOGETHER) {
            let Some(object) = folder.read(&name, OBJECT_BYTES_MAX) else { continue };
            let Some((prefix, _)) = name.split_once(OBJECT) else { continue };
            if let Some(unit) = self.unit(prefix) {
                self.add_object(unit, &object);
            }
            self.seen.insert(name);
        }
    }

    fn unit(&mut self, prefix: &str) -> Option<usize> {
        if let Some(unit) = self.by_prefix.get(prefix) {
            return Some(*unit);
        }
        let unit = self.units.len();
        (unit < UNITS_MAX).then(|| {
            self.units.push(Unit { prefix: prefix.to_owned(), kernels: FxHashSet::default(), hlo: None });
            self.by_prefix.insert(prefix.to_owned(), unit);
            unit
        })
    }

    fn add_object(&mut self, unit: usize, object: &[u8]) {
        for function in functions(object) {
            if self.by_code.len() < CODES_MAX {
                let units = self.by_code.entry(function.code).or_default();
                if !units.contains(&unit) {
                    units.push(unit);
                }
                self.units[unit].kernels.insert(function.name);
            }
        }
    }

    /// Reads entries of the cache, the newest first. All that are read count: another module may have the same code.
    fn read_cache(&mut self, folder: &Folder) {
        let mut fresh: Vec<(i64, String)> = folder
            .names()
            .into_iter()
            .filter(|name| name.ends_with("-cache") && !self.seen.contains(name))
            .filter_map(|name| Some((folder.written(&name)?, name)))
            .collect();
        fresh.sort_unstable_by(|a, b| b.cmp(a));
        for (_, name) in fresh {
            if self.entries_read >= ENTRIES_MAX
                || self.bytes_read >= CACHE_BYTES_MAX
                || self.units.len() >= UNITS_MAX
            {
                break;
            }
            self.entries_read += 1;
            let entry = folder.read(&name, ENTRY_BYTES_MAX).and_then(|packed| unpacked(&packed));
            self.seen.insert(name);
            let Some(entry) = entry else { continue };
            self.bytes_read += entry.len() as u64;
            // One executable, one module.
            let Some(hlo) = hlo::find_modules(&entry).into_iter().next() else { continue };
            let unit = self.units.len();
            self.units.push(Unit {
                prefix: String::new(),
                kernels: FxHashSet::default(),
                hlo: Some(Some(Arc::new(hlo))),
            });
            for object in hlo::objects(&entry) {
                self.add_object(unit, object);
                self.loaded.add(unit, object);
            }
        }
    }
}

impl Device {
    /// Reads modules that are new.
    fn look(&mut self, folder: &Folder, time_ns: u64) {
        if self.too_much || self.looked_at_ns.is_some_and(|at| time_ns.saturating_sub(at) < LOOK_NS) {
            return;
        }
        self.looked_at_ns = Some(time_ns);
        for name in folder.names() {
            if !name.ends_with(DEVICE_TEXT) || self.seen.contains(&name) {
                continue;
            }
            let own = folder.written(&name).zip(self.began).is_some_and(|(at, began)| at >= began);
            let text = if own { folder.read(&name, TEXT_BYTES_MAX) } else { None };
            if self.seen.len() >= DEVICE_MODULES_MAX || self.bytes_read >= DEVICE_BYTES_MAX {
                self.too_much = true;
                return;
            }
            if let Some(text) = text {
                self.bytes_read += text.len() as u64;
                self.seen.insert(name);
                let Some(hlo) = hlo::parse_text(&String::from_utf8_lossy(&text)) else { continue };
                let number = self.modules.len() as u32;
                for name in hlo.device_names() {
                    let having = self.by_name.entry(name).or_default();
                    if having.last() != Some(&number) {
                        having.push(number);
                    }
                }
                self.modules.push(hlo);
            }
        }
    }
}

/// When a process began, in seconds since 1970.
fn began(pid: u32) -> Option<i64> {
    let ticks = started(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let booted = std::fs::read_to_string("/proc/stat").ok()?;
    let booted: i64 = booted.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    booted.checked_add(i64::try_from(ticks.checked_div(rustix::param::clock_ticks_per_second())?).ok()?)
}

/// When a process began, in ticks since the machine did: the field behind the name, which may hold anything.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The content of an entry of JAX's cache: packed by zlib or by zstd.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    if packed.starts_with(b"\x28\xb5\x2f\xfd") {
        let reader = ruzstd::decoding::StreamingDecoder::new(packed).ok()?;
        reader.take(UNPACKED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    } else {
        flate2::read::ZlibDecoder::new(packed).take(UNPACKED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module whose entry applies fusions of these names, each of an operator of the same name at a line.
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

    /// The unit and the line of a kernel, loaded together with others.
    fn check(modules: &[(&str, &[(&str, u32)])], name: &str, siblings: &[&str], expect: (&str, Option<u32>)) {
        let (_folder, mut process) = dump(modules);
        let kernel = process.device(0, name, siblings).unwrap();
        let line = kernel.stack().first().map(|line| line.line);
        assert_eq!((kernel.unit_label().as_str(), line), expect, "{name} {siblings:?}");
    }

    #[test]
    fn a_kernel_of_a_device_belongs_to_the_module_that_has_all_that_came_with_it() {
        let f: (&str, &[_]) = ("jit_f", &[("loop_add_fusion", 3), ("loop_exp_fusion.1", 4)]);
        let g: (&str, &[_]) = ("jit_g", &[("loop_add_fusion", 7), ("input_reduce_fusion", 8)]);
        check(&[f], "loop_exp_fusion_1", &[], ("[xla jit_f]", Some(4)));
        check(&[f, g], "input_reduce_fusion", &["loop_add_fusion"], ("[xla jit_g]", Some(8)));
        check(&[f, g], "loop_add_fusion", &[], ("[xla jit_f or jit_g]", None));
        check(&[f, g], "loop_add_fusion", &["loop_exp_fusion_1"], ("[xla jit_f]", Some(3)));
        // Kernels of no module (the runtime's own) say nothing.
        check(&[f, g], "loop_add_fusion", &["input_reduce_fusion", "delay_kernel"], ("[xla jit_g]", Some(7)));
        check(&[f, f], "loop_add_fusion", &[], ("[xla jit_f]", Some(3)));
        // A kernel may be shared by namesakes that are not loaded.
        let shared: (&str, &[_]) = ("jit_h", &[("loop_add_fusion", 3), ("loop_add_fusion.1", 4)]);
        check(&[shared], "loop_add_fusion", &["loop_add_fusion_1"], ("[xla jit_h]", Some(3)));
        let (_folder, mut process) = dump(&[shared]);
        let kernel = process.device(0, "loop_add_fusion", &[]).unwrap();
        assert_eq!((kernel.stack().len(), kernel.others.len()), (0, 1));
        assert_eq!(process.device(0, "gemm", &[]), Err(NoKernel::NotThere));
    }

    #[test]
    fn what_was_dumped_before_the_process_began_is_not_of_it() {
        let (folder, mut process) = dump(&[("jit_f", &[("loop_add_fusion", 3)])]);
        let began = process.device.began.unwrap();
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        assert!((now - 3600..=now).contains(&began), "{began} {now}");
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let before = std::time::UNIX_EPOCH + std::time::Duration::from_secs(began as u64 - 10);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
        assert_eq!(process.device(0, "loop_add_fusion", &[]), Err(NoKernel::NotThere));
        assert_eq!(started("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1234 20"), Some(1234));
        assert_eq!(started("7 (a"), None);
    }
}
