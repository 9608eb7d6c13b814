//! Finding the file with the debug information, or at least the symbols, of a module.
//!
//! Owns: the policy ([`DebugInfo`]) and the search by build-id and debug link on this machine. Because: the names of
//! such files come from the module, which is untrusted. A search that opens any named file could be made to hang on a
//! FIFO, or to read another program's file. Does not: parse debug information or symbols, or query servers.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deepctx_address_space::elf::{BuildId, DebugLink, ElfFacts, ModuleId};
use deepctx_address_space::maps;

use super::debuginfod::Servers;
use crate::native::Module;

/// Bytes per read while a checksum is computed.
const PIECE: usize = 256 << 10;
/// Largest file whose checksum is computed: for a file of root or ourselves, and for one of others, who may want it to
/// take long. Most compilers and packages use build-ids instead.
const LINKED_BYTES_MAX: u64 = 4 << 30;
const LINKED_BYTES_OF_OTHERS_MAX: u64 = 64 << 20;

/// Whether and where to look for debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugInfo {
    /// Debug sections larger than this many bytes are not read; then only the symbol table is used. 0 turns debug
    /// information and separate files off.
    pub bytes_max: u64,
    /// Trusted folders with separate debug files; each may contain `.build-id/xx/yyyy.debug`.
    pub folders: Vec<PathBuf>,
    /// Servers for debug information that this machine lacks; `None`: none.
    pub servers: Option<Servers>,
}

impl Default for DebugInfo {
    fn default() -> Self {
        Self {
            bytes_max: 512 << 20,
            folders: vec!["/usr/lib/debug".into(), "/lib/debug".into()],
            servers: None,
        }
    }
}

/// A file with the debug information of a module.
#[derive(Debug)]
pub(super) struct LocatedDebugFile {
    /// The module itself, or a separate file.
    pub(super) file: Arc<File>,
    /// Only its symbol table is used.
    pub(super) symbols_only: bool,
    /// A user other than root and ourselves may have written it.
    pub(super) doubted: bool,
    /// Its supplementary file.
    pub(super) supplement: Option<File>,
    /// The build that it is of, if it says so.
    build: Option<BuildId>,
}

impl DebugInfo {
    /// The file with the debug information of a module: the module itself, or a separate file.
    pub(super) fn find(&self, module: &Module, own: &Arc<File>) -> Option<LocatedDebugFile> {
        let sections = &module.facts().sections;
        if sections.debug_info > 0 && sections.debug_link.is_none() {
            return self.usable(module.facts(), false).then(|| LocatedDebugFile {
                file: Arc::clone(own),
                symbols_only: false,
                doubted: !is_owned_by_us(own),
                supplement: None,
                build: module.facts().build_id,
            });
        }
        if self.bytes_max == 0 {
            return None;
        }
        let by_id = match module.id() {
            ModuleId::BuildId(id) => self.by_build_id(id),
            ModuleId::Content { .. } => None,
        };
        let most = if is_owned_by_us(own) { LINKED_BYTES_MAX } else { LINKED_BYTES_OF_OTHERS_MAX };
        by_id.or_else(|| self.by_link(module, own, sections.debug_link.as_ref()?, most))
    }

    /// The build to request from servers: that of a file without debug information of its own and, so far, without a
    /// separate file that has any.
    pub(super) fn wanted(&self, module: &Module, found: Option<&LocatedDebugFile>) -> Option<BuildId> {
        let has_debug =
            module.facts().sections.debug_info > 0 || found.is_some_and(|found| !found.symbols_only);
        let ModuleId::BuildId(id) = module.id() else { return None };
        // The kernel's images are not files.
        let is_file = module.path().starts_with('/');
        (self.bytes_max > 0 && is_file && !has_debug).then_some(id)
    }

    /// A file from a server: anybody may have written it.
    pub(super) fn served(&self, file: File) -> Option<LocatedDebugFile> {
        let facts = ElfFacts::read(&file).ok()?;
        let symbols_only = !self.usable(&facts, false);
        if symbols_only && !has_usable_symbols(&facts) {
            return None;
        }
        let (file, build) = (Arc::new(file), facts.build_id);
        Some(LocatedDebugFile { file, symbols_only, doubted: true, supplement: None, build })
    }

    /// Whether debug information may be read. Only files in trusted folders may refer to a supplementary file.
    fn usable(&self, facts: &ElfFacts, trusted: bool) -> bool {
        let s = &facts.sections;
        let foreign = !trusted && s.supplement.is_some();
        let simple = s.debug_info > 0 && !s.inflated && !foreign && s.debug_link.is_none();
        simple && s.debug_total <= self.bytes_max
    }

    /// The file at a path; `build`: only if it says that it is of this one.
    fn candidate(&self, path: &Path, trusted: bool, build: Option<BuildId>) -> Option<LocatedDebugFile> {
        let file = maps::open_path(path).ok()?;
        let facts = ElfFacts::read(&file).ok()?;
        if build.is_some() && facts.build_id != build {
            return refuse(path, "it is of another build");
        }
        let symbols_only = !self.usable(&facts, trusted);
        if symbols_only && !has_usable_symbols(&facts) {
            return None;
        }
        let supplement = || {
            let name = Path::new(OsStr::from_bytes(facts.sections.supplement.as_deref()?));
            self.supplement(&path.parent()?.join(name))
        };
        Some(LocatedDebugFile {
            symbols_only,
            doubted: !trusted && !is_owned_by_us(&file),
            supplement: if symbols_only { None } else { supplement() },
            build: facts.build_id,
            file: Arc::new(file),
        })
    }

    /// The supplementary file of debug information in a trusted folder.
    fn supplement(&self, path: &Path) -> Option<File> {
        let file = maps::open_path(path).ok()?;
        let sections = ElfFacts::read(&file).ok()?.sections;
        (!sections.inflated && sections.debug_total <= self.bytes_max).then_some(file)
    }

    fn by_build_id(&self, id: BuildId) -> Option<LocatedDebugFile> {
        let text = id.to_string();
        let (first, rest) = text.split_at_checked(2)?;
        let below = format!(".build-id/{first}/{rest}.debug");
        self.folders.iter().find_map(|folder| self.candidate(&folder.join(&below), true, Some(id)))
    }

    /// Searches the same places as debuggers: beside the module, in `.debug` beside it, and below the debug folders.
    /// A build-id decides if both files have one; otherwise the checksum, for files of at most `most` bytes. The path
    /// of a module in a container may lead to a folder of the host here, which it could choose: that is not searched.
    fn by_link(&self, module: &Module, own: &File, link: &DebugLink, most: u64) -> Option<LocatedDebugFile> {
        let name = OsStr::from_bytes(&link.name);
        let beside = Path::new(&**module.path()).parent().filter(|folder| folder.is_absolute())?;
        let below = beside.strip_prefix("/").ok()?;
        let near = [beside.join(name), beside.join(".debug").join(name)].map(|path| (path, false));
        let near = near.into_iter().filter(|_| is_at(module.path(), own));
        let far = self.folders.iter().map(|folder| (folder.join(below).join(name), true));
        near.chain(far).find_map(|(path, trusted)| {
            let found = self.candidate(&path, trusted, None)?;
            if let (Some(wanted), Some(build)) = (module.facts().build_id, found.build) {
                return if build == wanted { Some(found) } else { refuse(&path, "it is of another build") };
            }
            let most = if trusted || !found.doubted { most } else { most.min(LINKED_BYTES_OF_OTHERS_MAX) };
            match checksum(&found.file, most) {
                Some(crc) if crc == link.crc => Some(found),
                Some(_) => refuse(&path, "it has another checksum"),
                None => refuse(&path, "it has no build-id, and is too large for its checksum or unreadable"),
            }
        })
    }
}

/// Says why a file with debug information is not used.
fn refuse(path: &Path, because: &str) -> Option<LocatedDebugFile> {
    tracing::warn!(path = %path.display(), because, "a file with debug information is not used");
    None
}

/// Whether this path leads to this very file, as seen from here.
fn is_at(path: &str, own: &File) -> bool {
    let here = maps::open_path(Path::new(path)).ok().and_then(|file| file.metadata().ok());
    here.zip(own.metadata().ok())
        .is_some_and(|(here, own)| (here.dev(), here.ino()) == (own.dev(), own.ino()))
}

/// Whether the symbols of a separate file may be read.
fn has_usable_symbols(facts: &ElfFacts) -> bool {
    let s = &facts.sections;
    s.symtab && !s.inflated && s.debug_link.is_none()
}

/// True for files of root and of the profiler's own user, who could do harm even without debug information.
fn is_owned_by_us(file: &File) -> bool {
    let us = rustix::process::geteuid().as_raw();
    file.metadata().is_ok_and(|meta| meta.uid() == 0 || meta.uid() == us)
}

/// CRC-32 (IEEE 802.3) of a file, by which `.gnu_debuglink` identifies it; `None` if it has more than `most` bytes.
fn checksum(file: &File, most: u64) -> Option<u32> {
    if file.metadata().ok()?.len() > most {
        return None;
    }
    let mut crc = crc32fast::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut offset = 0;
    // It may grow meanwhile.
    while offset <= most {
        match file.read_at(&mut piece, offset).ok()? {
            0 => return Some(crc.finalize()),
            read => {
                crc.update(&piece[..read]);
                offset += read as u64;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_only_of_the_file_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("of container"), "own").unwrap();
        std::fs::write(path("of host"), "own").unwrap();
        std::fs::hard_link(path("of container"), path("another name")).unwrap();
        let own = File::open(path("of container")).unwrap();
        let leads = |name: &str| is_at(path(name).to_str().unwrap(), &own);
        assert_eq!(
            ["of container", "another name", "of host", "missing"].map(leads),
            [true, true, false, false]
        );
    }

    #[test]
    fn a_linked_file_beyond_the_bound_is_not_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3).unwrap();
        assert_eq!(checksum(&file, 3), Some(crc32fast::hash(&[0; 3])));
        assert_eq!(checksum(&file, 2), None);
        // Without a bound, reading a sparse file takes an hour.
        file.set_len(1 << 42).unwrap();
        assert_eq!(checksum(&file, LINKED_BYTES_MAX), None);
    }
}
