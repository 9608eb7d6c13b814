//! Names of kernel code.
//!
//! Owns: the parser of `/proc/kallsyms` (pure), the table searched by address, and when to read it again. Because:
//! modules and BPF programs are loaded and unloaded during a capture, and hidden addresses must be reported as
//! hidden. Does not: decide how kernel frames are displayed.

use std::fs::File;
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, BufRead, BufReader, Read as _};
use std::thread::JoinHandle;

use deepctx_address_space::{KernelAddr, NoSymbol};
use rustc_hash::{FxHashMap, FxHasher};

/// Most bytes of kallsyms read; large distribution kernels have about 15 MiB.
const KALLSYMS_BYTES_MAX: u64 = 256 << 20;
/// Most symbols kept.
const SYMBOLS_MAX: usize = 4 << 20;
/// kallsyms has no sizes. No function is this long, so an address farther after a symbol is not in it.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;
/// Shortest time between two reads: each takes the kernel about 0.1 s.
const REREAD_INTERVAL_NS: u64 = 10_000_000_000;
/// The same for an address that is covered, but not for good: modules and BPF programs are rarely replaced.
const COVERED_REREAD_INTERVAL_NS: u64 = 60_000_000_000;
/// Calls of [`Kernel::trim`] after which the table of a kernel is dropped: 5 to 15 MiB.
const IDLE_TRIMS: u64 = 60;
/// Most addresses whose names are compared when the table is read again.
const COMPARED_MAX: usize = 4096;
/// What kallsyms states as the module of BPF programs.
const BPF: &str = "bpf";
/// Start of the upper half of the address space, which the kernel uses.
const KERNEL_HALF: u64 = 1 << 63;

/// A symbol of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// Name as in kallsyms.
    pub name: &'a str,
    /// Module in brackets after the name (`nvidia`, `bpf`); empty for the kernel itself.
    pub module: &'a str,
    /// First address.
    pub start: KernelAddr,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    name: u32,
    name_length: u16,
    module: u16,
}

/// An entry with its rank: of several symbols at one address, the one with the smallest is used.
type RankedSymbol = (u16, Entry);

/// The text symbols of a kernel.
#[derive(Debug, Default)]
pub struct Kallsyms {
    entries: Vec<Entry>,
    names: String,
    modules: Vec<Box<str>>,
    malformed: u64,
    dropped: u64,
    hidden: bool,
}

impl Kallsyms {
    /// Parses the bytes of a kallsyms file. Never fails: malformed lines are counted.
    pub fn parse(bytes: &[u8]) -> Self {
        // Reading from memory does not fail.
        Self::read(bytes).unwrap_or_default()
    }

    /// Parses a kallsyms file line by line: as a whole it is several times as large as what is kept of it.
    fn read(mut file: impl BufRead) -> io::Result<Self> {
        let mut table = Self { modules: vec!["".into()], ..Self::default() };
        let (mut entries, mut zeros, mut bytes) = (Vec::new(), 0_u64, Vec::new());
        while file.read_until(b'\n', &mut bytes)? > 0 {
            let line = bytes.trim_ascii_end();
            if let Some((start, kind, name, module)) = parse_line(line) {
                let is_code = matches!(kind, b'T' | b't' | b'W' | b'w');
                zeros += u64::from(is_code && start == 0);
                if is_code && start >= KERNEL_HALF {
                    table.add(&mut entries, start, kind, name, module);
                }
            } else if !line.is_empty() {
                table.malformed += 1;
            }
            bytes.clear();
        }
        table.hidden = entries.is_empty() && zeros > 0;
        // Stable: of equal entries the first in the file is kept.
        entries.sort_by_key(|(rank, entry)| (entry.start, *rank));
        entries.dedup_by_key(|(_, entry)| entry.start);
        table.entries = entries.iter().map(|(_, entry)| *entry).collect();
        table.names.shrink_to_fit();
        Ok(table)
    }

    fn add(&mut self, entries: &mut Vec<RankedSymbol>, start: u64, kind: u8, name: &str, module: &str) {
        let (Ok(at), Ok(name_length)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else {
            self.dropped += 1;
            return;
        };
        if entries.len() >= SYMBOLS_MAX {
            self.dropped += 1;
            return;
        }
        // Symbols of a module follow each other: its name is nearly always the last one.
        let module = match self.modules.last() {
            Some(last) if &**last == module => self.modules.len() - 1,
            _ => self.modules.iter().position(|known| &**known == module).unwrap_or_else(|| {
                self.modules.push(module.into());
                self.modules.len() - 1
            }),
        };
        let Ok(module) = u16::try_from(module) else {
            self.dropped += 1;
            return;
        };
        self.names.push_str(name);
        entries.push((rank(kind, name), Entry { start, name: at, name_length, module }));
    }

    /// The symbol whose code contains an address.
    ///
    /// # Errors
    /// [`NoSymbol::KernelRestricted`] when the kernel hides its addresses, else [`NoSymbol::KernelNotCovered`].
    pub fn lookup(&self, address: KernelAddr) -> Result<KernelSymbol<'_>, NoSymbol> {
        if self.hidden {
            return Err(NoSymbol::KernelRestricted);
        }
        let (entry, _) = self.entry(address).ok_or(NoSymbol::KernelNotCovered)?;
        let name = entry.name as usize..entry.name as usize + usize::from(entry.name_length);
        Ok(KernelSymbol {
            name: self.names.get(name).ok_or(NoSymbol::KernelNotCovered)?,
            module: self.modules.get(usize::from(entry.module)).map_or("", |m| m),
            start: KernelAddr(entry.start),
        })
    }

    /// The last entry at or before an address, if it may reach it, and the one behind that.
    fn entry(&self, address: KernelAddr) -> Option<(&Entry, Option<&Entry>)> {
        let at = self.entries.partition_point(|e| e.start <= address.0);
        let entry = self.entries[..at].last().filter(|e| address.0 - e.start < FUNCTION_BYTES_MAX)?;
        Some((entry, self.entries.get(at)))
    }

    /// Whether an address is covered, and stays so: not by the last symbol of a module, behind which another may have
    /// been loaded since, nor by a BPF program, which may have been replaced.
    fn covers_for_good(&self, address: KernelAddr) -> bool {
        self.entry(address).is_some_and(|(entry, next)| {
            let is_of_bpf = self.modules.get(usize::from(entry.module)).is_some_and(|of| &**of == BPF);
            let is_last = next.is_none_or(|next| next.module != entry.module);
            entry.module == 0 || !is_of_bpf && !is_last
        })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.names.capacity()
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without symbols.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Malformed lines.
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Symbols dropped because the table was full.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Address, kind, name, module.
fn parse_line(line: &[u8]) -> Option<(u64, u8, &str, &str)> {
    let line = str::from_utf8(line).ok()?;
    let (address, rest) = line.split_once(' ')?;
    let (kind, rest) = rest.split_once(' ')?;
    let (name, module) = match rest.split_once('\t') {
        Some((name, module)) => (name, module.strip_prefix('[')?.strip_suffix(']')?),
        None => (rest, ""),
    };
    if address.len() > 16 || address.starts_with('+') || kind.len() != 1 || name.is_empty() {
        return None;
    }
    Some((u64::from_str_radix(address, 16).ok()?, kind.as_bytes()[0], name, module))
}

/// Prefers names that a developer would recognize: global before local before weak, few leading underscores, no
/// marker symbols of the linker or the compiler.
fn rank(kind: u8, name: &str) -> u16 {
    let kind = match kind {
        b'T' => 0,
        b't' => 1,
        _ => 2,
    };
    let underscores = name.bytes().take_while(|b| *b == b'_').count().min(15);
    let marker = ["_text", "_stext", "_sinittext", "__pfx_", "__cfi_", "srso_", "__indirect_thunk_start"]
        .iter()
        .any(|marker| name.starts_with(marker));
    u16::from(marker) << 8 | (kind + u16::try_from(underscores).unwrap_or(15) * 4)
}

/// The symbols of the running kernel, read when first needed and again when an address is not covered.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    table: Option<Result<Kallsyms, NoSymbol>>,
    prefetch: Option<JoinHandle<Result<Kallsyms, NoSymbol>>>,
    read_at_ns: u64,
    reads: u64,
    /// Calls of [`Kernel::trim`] since the last look-up.
    idle_trims: u64,
    /// Hashes of the names of addresses that were looked up, and that are not covered for good.
    given: FxHashMap<u64, u64>,
    /// One of these names has changed.
    is_renamed: bool,
}

impl Kernel {
    /// Nothing is read yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A kernel with the symbols of this text.
    #[cfg(test)]
    pub(crate) fn with_symbols(text: &str) -> Self {
        Self { table: Some(Ok(Kallsyms::parse(text.as_bytes()))), ..Self::default() }
    }

    /// Starts reading the table on a separate thread, so that the first kernel stack need not wait for it.
    pub(crate) fn prefetch(&mut self) {
        if self.table.is_none() && self.prefetch.is_none() {
            // Without a thread the table is read when it is needed.
            self.prefetch = std::thread::Builder::new().name("kallsyms".into()).spawn(read).ok();
        }
    }

    /// The symbol of an address. `time_ns` is the time of the sample: if the address is not covered and the table is
    /// older than ten seconds by that clock, or covered but not for good and older than a minute, it is read again.
    ///
    /// # Errors
    /// [`NoSymbol::KernelRestricted`], [`NoSymbol::KernelNotCovered`] or [`NoSymbol::KernelUnreadable`].
    pub(crate) fn lookup(&mut self, address: KernelAddr, time_ns: u64) -> Result<KernelSymbol<'_>, NoSymbol> {
        self.idle_trims = 0;
        let age_ns = time_ns.saturating_sub(self.read_at_ns);
        let is_due = match &self.table {
            None => true,
            Some(Ok(table)) if table.covers_for_good(address) => false,
            Some(Ok(table)) if table.entry(address).is_some() => age_ns >= COVERED_REREAD_INTERVAL_NS,
            Some(_) => age_ns >= REREAD_INTERVAL_NS,
        };
        if is_due {
            let prefetched = self.prefetch.take().and_then(|thread| thread.join().ok());
            self.table = Some(prefetched.unwrap_or_else(read));
            self.read_at_ns = time_ns;
            self.reads += 1;
            self.compare_given();
        }
        let is_for_good = matches!(&self.table, Some(Ok(table)) if table.covers_for_good(address));
        if !is_for_good && self.given.len() < COMPARED_MAX {
            let name = self.hash_of_name(address.0);
            self.given.insert(address.0, name);
        }
        match &self.table {
            Some(Ok(table)) => table.lookup(address),
            Some(Err(reason)) => Err(*reason),
            None => Err(NoSymbol::KernelUnreadable),
        }
    }

    /// Whether a name that was given before has changed since the last call.
    pub(crate) fn take_renamed(&mut self) -> bool {
        std::mem::take(&mut self.is_renamed)
    }

    fn compare_given(&mut self) {
        let mut given = std::mem::take(&mut self.given);
        for (address, before) in &mut given {
            let now = self.hash_of_name(*address);
            self.is_renamed |= std::mem::replace(before, now) != now;
        }
        self.given = given;
    }

    /// Hash of the name of an address, or of its lack of one.
    fn hash_of_name(&self, address: u64) -> u64 {
        let symbol = match &self.table {
            Some(Ok(table)) => table.lookup(KernelAddr(address)).ok(),
            Some(Err(_)) | None => None,
        };
        let mut hasher = FxHasher::default();
        symbol.map(|symbol| symbol.name).hash(&mut hasher);
        hasher.finish()
    }

    /// Drops the table when it has not been used for long: names stay cached, so new ones become rare. Call it about
    /// every second. True if there is memory to be returned to the system.
    pub(crate) fn trim(&mut self) -> bool {
        self.idle_trims += 1;
        self.idle_trims > IDLE_TRIMS && self.table.take_if(|table| table.is_ok()).is_some()
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.table {
            Some(Ok(table)) => table.bytes(),
            Some(Err(_)) | None => 0,
        }
    }

    /// How often the table was read.
    pub(crate) const fn reads(&self) -> u64 {
        self.reads
    }
}

fn read() -> Result<Kallsyms, NoSymbol> {
    let read = || -> io::Result<Option<Kallsyms>> {
        let mut file = BufReader::new(File::open("/proc/kallsyms")?.take(KALLSYMS_BYTES_MAX));
        if file.fill_buf()?.is_empty() { Ok(None) } else { Kallsyms::read(file).map(Some) }
    };
    match read() {
        Ok(Some(table)) => Ok(table),
        Ok(None) => Err(NoSymbol::KernelUnreadable),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(NoSymbol::KernelRestricted),
        Err(_) => Err(NoSymbol::KernelUnreadable),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000200 t __pfx_do_one_initcall
ffffffff81000210 T do_one_initcall
ffffffff81000400 W weak_name
ffffffff81000400 T strong_name
ffffffff82000000 D some_data
ffffffffc0100000 t nv_open\t[nvidia]
ffffffffc0200000 t bpf_prog_6deef7357e7b4530_sample\t[bpf]
";

    fn check(address: u64, expected: Result<(&str, &str), NoSymbol>) {
        let table = Kallsyms::parse(TEXT.as_bytes());
        assert_eq!(table.lookup(KernelAddr(address)).map(|s| (s.name, s.module)), expected, "{address:#x}");
    }

    #[test]
    fn an_address_belongs_to_the_last_symbol_before_it() {
        check(0xffff_ffff_8100_0210, Ok(("do_one_initcall", "")));
        check(0xffff_ffff_8100_03ff, Ok(("do_one_initcall", "")));
        check(0xffff_ffff_c010_0010, Ok(("nv_open", "nvidia")));
        check(0xffff_ffff_c020_0001, Ok(("bpf_prog_6deef7357e7b4530_sample", "bpf")));
    }

    #[test]
    fn of_several_names_the_most_recognisable_is_used() {
        check(0xffff_ffff_8100_0000, Ok(("startup_64", "")));
        check(0xffff_ffff_8100_0400, Ok(("strong_name", "")));
    }

    #[test]
    fn an_address_far_after_every_symbol_has_no_name() {
        check(0xffff_ffff_9000_0000, Err(NoSymbol::KernelNotCovered));
        check(0xffff_ffff_8000_0000, Err(NoSymbol::KernelNotCovered));
        check(0x1000, Err(NoSymbol::KernelNotCovered));
    }

    #[test]
    fn names_of_modules_and_bpf_programs_are_not_for_good() {
        let check = |address: u64, reread_after_ns: Option<u64>| {
            let table = Some(Ok(Kallsyms::parse(TEXT.as_bytes())));
            let mut kernel = Kernel { table, ..Kernel::default() };
            let after_ns = reread_after_ns.unwrap_or(10 * COVERED_REREAD_INTERVAL_NS);
            let reads = u64::from(reread_after_ns.is_some());
            for (time_ns, expect) in [(0, 0), (after_ns - 1, 0), (after_ns, reads)] {
                // The names of this machine, if the table was read again.
                let _ = kernel.lookup(KernelAddr(address), time_ns);
                assert_eq!(kernel.reads(), expect, "{address:#x} {time_ns}");
            }
        };
        check(0xffff_ffff_8100_0210, None);
        check(0xffff_ffff_c010_0010, Some(COVERED_REREAD_INTERVAL_NS));
        check(0xffff_ffff_c020_0001, Some(COVERED_REREAD_INTERVAL_NS));
        check(0xffff_ffff_9000_0000, Some(REREAD_INTERVAL_NS));
    }

    #[test]
    fn hidden_addresses_differ_from_unknown_ones() {
        let table = Kallsyms::parse(b"0000000000000000 T _text\n0000000000000000 t nv_open\t[nvidia]\n");
        assert_eq!(table.lookup(KernelAddr(0xffff_ffff_8100_0000)), Err(NoSymbol::KernelRestricted));
        assert_eq!(Kallsyms::parse(b"").lookup(KernelAddr(u64::MAX)), Err(NoSymbol::KernelNotCovered));
    }

    #[test]
    fn malformed_lines_are_counted() {
        let table = Kallsyms::parse(
            b"x T a\nffffffff81000000\nffffffff81000000 T\nffffffff81000000 T b\tc\nffffffff81000000 T ok\n",
        );
        assert_eq!((table.malformed(), table.len()), (4, 1));
    }

    #[test]
    fn an_unused_table_is_dropped_and_read_again() {
        let mut kernel = Kernel::new();
        let of_nothing = KernelAddr(u64::MAX);
        let first = kernel.lookup(of_nothing, 0).map(|symbol| symbol.start);
        let has_table = kernel.bytes() > 0;
        assert!((0..IDLE_TRIMS).all(|_| !kernel.trim()), "dropped too early");
        assert_eq!(kernel.trim(), has_table);
        assert_eq!((kernel.bytes(), kernel.trim()), (0, false));
        assert_eq!(kernel.lookup(of_nothing, 0).map(|symbol| symbol.start), first);
        assert_eq!(kernel.bytes() > 0, has_table);
    }

    #[test]
    fn the_running_kernel_has_names_or_hides_them() {
        let mut kernel = Kernel::new();
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let line = text.lines().find(|line| line.ends_with(" T vfs_read")).unwrap();
        let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        let lookup = if address == 0 { u64::MAX } else { address + 1 };
        let expected = if address == 0 { Err(NoSymbol::KernelRestricted) } else { Ok("vfs_read") };
        assert_eq!(kernel.lookup(KernelAddr(lookup), 0).map(|s| s.name), expected);
    }

    #[test]
    fn a_prefetched_table_counts_as_the_first_read() {
        let mut kernel = Kernel::new();
        kernel.prefetch();
        assert!(kernel.lookup(KernelAddr(0), 0).is_err());
        assert_eq!(kernel.reads(), 1);
    }

    #[test]
    fn names_that_changed_with_another_reading_are_noticed() {
        let table = |text: &str| Some(Ok(Kallsyms::parse(text.as_bytes())));
        let mut kernel = Kernel { table: table(TEXT), ..Kernel::new() };
        // Those of the kernel, of a BPF program, and of nothing yet.
        for address in [0xffff_ffff_8100_0210, 0xffff_ffff_c020_0001, 0xffff_ffff_c090_0001] {
            _ = kernel.lookup(KernelAddr(address), 0);
        }
        let mut check = |text: &str, expect: bool| {
            kernel.table = table(text);
            kernel.compare_given();
            assert_eq!((kernel.take_renamed(), kernel.take_renamed()), (expect, false), "{text}");
        };
        check(TEXT, false);
        check(&TEXT.replace("do_one_initcall", "another"), false);
        check(&TEXT.replace("4530_sample", "4530_other"), true);
        check(TEXT, true);
        check(&format!("{TEXT}ffffffffc0900000 t loaded_since\t[new]\n"), true);
    }

    #[test]
    fn the_table_is_reread_for_unknown_addresses_at_intervals() {
        let mut kernel = Kernel::new();
        for (time, reads) in [
            (0, 1),
            (1, 1),
            (REREAD_INTERVAL_NS - 1, 1),
            (REREAD_INTERVAL_NS, 2),
            (REREAD_INTERVAL_NS + 1, 2),
        ] {
            assert!(kernel.lookup(KernelAddr(0), time).is_err());
            assert_eq!(kernel.reads(), reads, "{time}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_handled(bytes in proptest::collection::vec(any::<u8>(), 0..300), address in any::<u64>()) {
            let _ = Kallsyms::parse(&bytes).lookup(KernelAddr(address));
        }

        #[test]
        fn a_lookup_never_gives_a_symbol_after_the_address(
            starts in proptest::collection::vec(KERNEL_HALF.., 1..20), address in KERNEL_HALF..,
        ) {
            let text: String = starts.iter().map(|s| format!("{s:x} t f{s:x}\n")).collect();
            let table = Kallsyms::parse(text.as_bytes());
            let expected = starts.iter().copied().filter(|s| *s <= address).max();
            let expected = expected.filter(|s| address - s < FUNCTION_BYTES_MAX);
            prop_assert_eq!(table.lookup(KernelAddr(address)).ok().map(|s| s.start.0), expected);
        }
    }

    #[test]
    fn a_prefetch_that_panics_is_made_good() {
        let mut kernel = Kernel::new();
        kernel.prefetch = Some(std::thread::spawn(|| panic!("a test wants it")));
        let found = kernel.lookup(KernelAddr(0), 1).map(|_| ());
        assert!(found.is_err() && kernel.prefetch.is_none());
        assert_eq!(kernel.reads(), 1, "the table was read by who needs it");
    }
}
