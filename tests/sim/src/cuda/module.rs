//! Modules, libraries and the kernels in them.
//!
//! Owns: which kernels an image has. Because: names of kernels come from here. Does not: understand code: of an ELF file
//! the sections `.text.NAME` count, of PTX the lines `.entry NAME`; of any other image every name is taken.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Mutex, PoisonError};

use super::context::{announce_with, working};
use super::registry::{Registry, handle_of};
use crate::api::{Code, In, Out, Raw, api};

/// A kernel, or a function of a module: here they are the same.
///
/// Like a driver's object it points to its name, and to much else: to text that is none, and to its neighbour, which has a name
/// too. Who finds a handle in a process can find the name.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Function {
    magic: u64,
    module: usize,
    /// The function that was made before it.
    neighbour: usize,
    section: *const c_char,
    architecture: *const c_char,
    name: *const c_char,
    pub(crate) registers: u32,
    pub(crate) static_shared: u32,
}

// SAFETY: its strings live for ever and are never changed.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

const MAGIC: u64 = u64::from_le_bytes(*b"simkern\0");

impl Function {
    /// Mangled, as the module has it.
    pub(crate) fn name(&self) -> &'static CStr {
        // SAFETY: leaked when the function was made.
        unsafe { CStr::from_ptr(self.name) }
    }
}

/// A module or library.
#[derive(Debug)]
pub(crate) struct Module {
    /// Names, when the image tells them.
    names: Option<Vec<CString>>,
    /// A copy of the code, where the image tells how long it is.
    _code: Vec<u64>,
    functions: Mutex<Vec<Arc<Function>>>,
}

pub(crate) static MODULES: Registry<Module> = Registry::new();
static FUNCTIONS: Registry<Function> = Registry::new();

/// Callback ids of the resource domain.
const MODULE_LOADED: u32 = 6;
const MODULE_UNLOAD_STARTING: u32 = 7;

/// The kernel of a handle.
pub(crate) fn function(handle: usize) -> Result<Arc<Function>, Code> {
    FUNCTIONS.get(handle)
}

/// Takes an image in.
pub(crate) fn load(image: usize) -> Result<usize, Code> {
    if image == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (names, _code) = (image::names(image), image::copy(image));
    let module = MODULES.add(Arc::new(Module { names, _code, functions: Mutex::default() }));
    let context = super::context::current().map_or(0, |context| context.handle());
    announce_with(MODULE_LOADED, context, 0, 0);
    Ok(module)
}

/// Takes in what a file has.
fn load_file(path: &CStr) -> Result<usize, Code> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = std::fs::read(std::ffi::OsStr::from_bytes(path.to_bytes())).map_err(|_| Code(301))?;
    // Terminated for texts, and aligned for headers; kept, since modules may be asked about for ever.
    let mut words = vec![0u64; bytes.len() / 8 + 1];
    for (i, byte) in bytes.iter().enumerate() {
        words[i / 8] |= u64::from(*byte) << (i % 8 * 8);
    }
    load(words.leak().as_ptr().expose_provenance())
}

/// Takes it away, with its kernels.
pub(crate) fn unload(module: usize) -> Result<(), Code> {
    announce_with(
        MODULE_UNLOAD_STARTING,
        super::context::current().map_or(0, |context| context.handle()),
        0,
        0,
    );
    let gone = MODULES.remove(module)?;
    for function in gone.functions.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        FUNCTIONS.remove(handle_of(&function))?;
    }
    Ok(())
}

/// The kernel of this name.
pub(crate) fn by_name(module: usize, name: &CStr) -> Result<usize, Code> {
    let of = MODULES.get(module)?;
    if of.names.as_ref().is_some_and(|names| !names.iter().any(|known| known.as_c_str() == name)) {
        return Err(Code::NOT_FOUND);
    }
    let mut functions = of.functions.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = functions.iter().find(|function| function.name() == name) {
        return Ok(handle_of(known));
    }
    // Names are leaked: records that point to them are read after a module was unloaded.
    let leaked: &'static CStr = Box::leak(CString::from(name).into_boxed_c_str());
    let section = CString::new([b".text.", name.to_bytes()].concat()).map_err(|_| Code::INVALID_VALUE)?;
    let function = Arc::new(Function {
        magic: MAGIC,
        module,
        neighbour: functions.last().map_or(0, handle_of),
        section: section.into_raw(),
        architecture: c"sm_90".as_ptr(),
        name: leaked.as_ptr(),
        registers: 32,
        static_shared: 0,
    });
    functions.push(function.clone());
    Ok(FUNCTIONS.add(function))
}

mod image {
    //! Names of kernels in an image.

    use std::ffi::{CStr, CString, c_char};

    use crate::api::In;

    /// Sections at most that are looked at.
    const SECTIONS_MAX: usize = 1 << 16;

    /// The names; `None` when the image is of a kind that does not tell.
    pub(super) fn names(address: usize) -> Option<Vec<CString>> {
        match at::<u32>(address)? {
            0x464c_457f => Some(of_elf(address)),
            // The wrapper that compilers put around a fat binary.
            0x4662_43b1 => None,
            // A fat binary: its images are compressed.
            0xba55_ed50 => None,
            _ => {
                let text = In::<c_char>::at(std::ptr::with_exposed_provenance(address)).text().ok()?;
                let text = text.to_str().ok()?;
                text.contains(".version").then(|| of_ptx(text))
            }
        }
    }

    fn at<T: Copy>(address: usize) -> Option<T> {
        In::at(std::ptr::with_exposed_provenance(address)).get().ok()
    }

    fn of_ptx(text: &str) -> Vec<CString> {
        let names = text.split(".entry").skip(1).map(|rest| {
            rest.trim_start()
                .split(|c: char| !(c.is_alphanumeric() || "_$%".contains(c)))
                .next()
                .unwrap_or("")
        });
        names.filter(|name| !name.is_empty()).filter_map(|name| CString::new(name).ok()).collect()
    }

    /// Sections that are called `.text.NAME`. Callers promise a whole file.
    fn of_elf(file: usize) -> Vec<CString> {
        let mut names = Vec::new();
        let (Some(offset), Some(count), Some(strings)) =
            (at::<u64>(file + 0x28), at::<u16>(file + 0x3c), at::<u16>(file + 0x3e))
        else {
            return names;
        };
        let header = |index: usize| file + offset as usize + index * 64;
        let Some(strings) = at::<u64>(header(strings.into()) + 0x18) else { return names };
        for index in 0..usize::from(count).min(SECTIONS_MAX) {
            let Some(name) = at::<u32>(header(index)) else { continue };
            let text = std::ptr::with_exposed_provenance(file + strings as usize + name as usize);
            if let Some(name) = In::<c_char>::at(text).text().ok().and_then(kernel_of) {
                names.push(name);
            }
        }
        names
    }

    /// The words of an ELF file; none when it is no such file.
    pub(super) fn copy(file: usize) -> Vec<u64> {
        let length = || {
            let (offset, count) = (at::<u64>(file + 0x28)?, at::<u16>(file + 0x3c)?);
            let header = |index: u64| file + (offset + index * 64) as usize;
            let mut end = offset + u64::from(count) * 64;
            for index in 0..u64::from(count) {
                // What has no bytes in the file may say any size.
                if at::<u32>(header(index) + 4)? != 8 {
                    end = end.max(at::<u64>(header(index) + 0x18)? + at::<u64>(header(index) + 0x20)?);
                }
            }
            Some(end)
        };
        let end = if at::<u32>(file) == Some(0x464c_457f) { length().unwrap_or(0) } else { 0 };
        (0..end / 8).map_while(|word| at(file + word as usize * 8)).collect()
    }

    fn kernel_of(section: &CStr) -> Option<CString> {
        CString::new(section.to_bytes().strip_prefix(b".text.")?).ok()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn kernels_of_ptx_are_its_entries() {
            let text = c".version 8.0\n.visible .entry _Z4gemmPf(\n)\n{ret;}\n.entry scan_2us() {ret;}\n";
            let found = names(text.as_ptr().expose_provenance()).unwrap();
            assert_eq!(found, [c"_Z4gemmPf".into(), CString::from(c"scan_2us")]);
        }

        #[test]
        fn an_unknown_image_tells_no_names() {
            let text = c"anything at all";
            assert_eq!(names(text.as_ptr().expose_provenance()), None);
        }
    }
}

api! { Driver;
    fn cuModuleLoad(module: Out<Raw>, path: In<c_char>) { working()?; module.put(load_file(path.text()?)?) }
    fn cuModuleLoadData(module: Out<Raw>, image: Raw) { working()?; module.put(load(image)?) }
    fn cuModuleLoadDataEx(module: Out<Raw>, image: Raw, _count: u32, _options: Raw, _values: Raw) {
        working()?;
        module.put(load(image)?)
    }
    fn cuModuleLoadFatBinary(module: Out<Raw>, image: Raw) { working()?; module.put(load(image)?) }
    fn cuModuleUnload(module: Raw) { unload(module) }
    fn cuModuleGetFunction(function: Out<Raw>, module: Raw, name: In<c_char>) { function.put(by_name(module, name.text()?)?) }
    fn cuModuleGetLoadingMode(mode: Out<u32>) { mode.put(2) }
    fn cuLibraryLoadData(library: Out<Raw>, image: Raw, _options: Raw, _values: Raw, _count: u32, _library_options: Raw, _library_values: Raw, _library_count: u32) {
        super::context::started()?;
        library.put(load(image)?)
    }
    fn cuLibraryLoadFromFile(library: Out<Raw>, path: In<c_char>, _options: Raw, _values: Raw, _count: u32, _library_options: Raw, _library_values: Raw, _library_count: u32) {
        super::context::started()?;
        library.put(load_file(path.text()?)?)
    }
    fn cuLibraryUnload(library: Raw) { unload(library) }
    fn cuLibraryGetKernel(kernel: Out<Raw>, library: Raw, name: In<c_char>) { kernel.put(by_name(library, name.text()?)?) }
    fn cuLibraryGetModule(module: Out<Raw>, library: Raw) { MODULES.get(library)?; module.put(library) }
    fn cuKernelGetFunction(out: Out<Raw>, kernel: Raw) { function(kernel)?; out.put(kernel) }
    fn cuKernelGetLibrary(out: Out<Raw>, kernel: Raw) { out.put(function(kernel)?.module) }
    fn cuFuncGetModule(out: Out<Raw>, kernel: Raw) { out.put(function(kernel)?.module) }
}
