//! Modules, libraries and the kernels in them.
//!
//! Owns: which kernels an image has. Because: names of kernels come from here. Does not: understand code: of an ELF
//! file the sections `.text.NAME` count, of PTX the lines `.entry NAME`; of any other image every name is taken.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Mutex, PoisonError};

use super::context::{announce_with, working};
use super::registry::{Registry, handle_of};
use crate::api::{Code, In, Out, Raw, api};
use crate::device::work::Code as KernelCode;
use crate::link;

/// A kernel or a function of a module, which are the same here.
///
/// Like a driver's object, it points to its name, but also to other things: to text that is no name, and to its
/// neighbor, which has a name too. A reader that finds a handle in a process can find the name.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Function {
    magic: u64,
    module: usize,
    /// The function created before it.
    neighbour: usize,
    section: *const c_char,
    architecture: *const c_char,
    name: *const c_char,
    pub(crate) registers: u32,
    pub(crate) static_shared: u32,
    pub(crate) code: KernelCode,
}

// SAFETY: its strings are never freed or changed.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

const MAGIC: u64 = u64::from_le_bytes(*b"simkern\0");

impl Function {
    /// Mangled, as in the module.
    pub(crate) fn name(&self) -> &'static CStr {
        // SAFETY: leaked when the function was created.
        unsafe { CStr::from_ptr(self.name) }
    }
}

/// A module or library.
#[derive(Debug)]
pub(crate) struct Module {
    /// Names, if the image has them.
    kernels: Option<Vec<image::Kernel>>,
    /// A copy of the code, if the image states its size.
    code: Vec<u64>,
    /// CUPTI's id of the code.
    crc: u64,
    functions: Mutex<Vec<Arc<Function>>>,
}

pub(crate) static MODULES: Registry<Module> = Registry::new();
static FUNCTIONS: Registry<Function> = Registry::new();

/// Callback ids of the resource domain.
const MODULE_LOADED: u32 = 6;
const MODULE_UNLOAD_STARTING: u32 = 7;

impl Module {
    /// The code as CUPTI shows it; empty if the image does not state its size.
    fn image(&self) -> &[u8] {
        // SAFETY: words are bytes, eight each.
        unsafe { std::slice::from_raw_parts(self.code.as_ptr().cast(), self.code.len() * 8) }
    }

    /// Notifies tools that it was loaded or is about to be unloaded.
    fn announce(&self, id: u32) {
        let image = self.image();
        let data = ModuleData {
            number: self.crc as u32,
            bytes: image.len(),
            cubin: if image.is_empty() { std::ptr::null() } else { image.as_ptr() },
        };
        let context = super::context::current().map_or(0, |context| context.handle());
        announce_with(id, context, 0, (&raw const data).expose_provenance());
    }
}

/// `CUpti_ModuleResourceData`.
#[repr(C)]
struct ModuleData {
    number: u32,
    bytes: usize,
    cubin: *const u8,
}

/// The kernel of a handle.
pub(crate) fn function(handle: usize) -> Result<Arc<Function>, Code> {
    FUNCTIONS.get(handle)
}

/// Loads an image.
pub(crate) fn load(image: usize) -> Result<usize, Code> {
    if image == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (kernels, code) = (image::kernels(image), image::copy(image));
    let mut module = Module { kernels, code, crc: 0, functions: Mutex::default() };
    module.crc = link::crc(module.image());
    let module = Arc::new(module);
    let handle = MODULES.add(module.clone());
    module.announce(MODULE_LOADED);
    Ok(handle)
}

/// Loads a file.
fn load_file(path: &CStr) -> Result<usize, Code> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = std::fs::read(std::ffi::OsStr::from_bytes(path.to_bytes())).map_err(|_| Code(301))?;
    // NUL-terminated for texts and aligned for headers; never freed, since module queries have no end.
    let mut words = vec![0u64; bytes.len() / 8 + 1];
    for (i, byte) in bytes.iter().enumerate() {
        words[i / 8] |= u64::from(*byte) << (i % 8 * 8);
    }
    load(words.leak().as_ptr().expose_provenance())
}

/// Unloads a module and its kernels.
pub(crate) fn unload(module: usize) -> Result<(), Code> {
    MODULES.get(module)?.announce(MODULE_UNLOAD_STARTING);
    let gone = MODULES.remove(module)?;
    for function in gone.functions.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        FUNCTIONS.remove(handle_of(&function))?;
    }
    Ok(())
}

/// The kernel with this name.
pub(crate) fn by_name(module: usize, name: &CStr) -> Result<usize, Code> {
    let of = MODULES.get(module)?;
    let kernel = match &of.kernels {
        Some(kernels) => {
            Some(kernels.iter().find(|known| known.name.as_c_str() == name).ok_or(Code::NOT_FOUND)?)
        }
        None => None,
    };
    // Default for code that is not available.
    let (bytes, symbol) = kernel.map_or((0, 0), |kernel| (kernel.bytes, kernel.symbol));
    let code = KernelCode { crc: of.crc, bytes: if bytes == 0 { 512 } else { bytes }, symbol };
    let mut functions = of.functions.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = functions.iter().find(|function| function.name() == name) {
        return Ok(handle_of(known));
    }
    // Names are leaked: records that point to them are read after their module was unloaded.
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
        code,
    });
    functions.push(function.clone());
    Ok(FUNCTIONS.add(function))
}

mod image {
    //! Names of kernels in an image.

    use std::ffi::{CStr, CString, c_char};

    use crate::api::In;

    /// Maximum number of sections examined.
    const SECTIONS_MAX: usize = 1 << 16;

    /// A kernel of an image.
    #[derive(Debug)]
    pub(super) struct Kernel {
        pub(super) name: CString,
        /// Bytes of its code; 0 when the image does not state them.
        pub(super) bytes: u32,
        pub(super) symbol: u32,
    }

    /// The kernels; `None` for a kind of image that does not list them.
    pub(super) fn kernels(address: usize) -> Option<Vec<Kernel>> {
        match at::<u32>(address)? {
            0x464c_457f => Some(of_elf(address)),
            // The wrapper that compilers put around a fat binary.
            0x4662_43b1 => None,
            // A fat binary: its images are compressed.
            0xba55_ed50 => None,
            _ => {
                let text = In::<c_char>::at(std::ptr::with_exposed_provenance(address)).text().ok()?;
                let text = text.to_str().ok()?;
                let kernel = |name| Kernel { name, bytes: 0, symbol: 0 };
                text.contains(".version").then(|| of_ptx(text).into_iter().map(kernel).collect())
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

    /// Sections named `.text.NAME`. Callers promise a complete file.
    fn of_elf(file: usize) -> Vec<Kernel> {
        let mut kernels = Vec::new();
        let (Some(offset), Some(count), Some(strings)) =
            (at::<u64>(file + 0x28), at::<u16>(file + 0x3c), at::<u16>(file + 0x3e))
        else {
            return kernels;
        };
        let header = |index: usize| file + offset as usize + index * 64;
        let Some(strings) = at::<u64>(header(strings.into()) + 0x18) else { return kernels };
        for index in 0..usize::from(count).min(SECTIONS_MAX) {
            let Some(name) = at::<u32>(header(index)) else { continue };
            let text = std::ptr::with_exposed_provenance(file + strings as usize + name as usize);
            if let Some(name) = In::<c_char>::at(text).text().ok().and_then(kernel_of) {
                let bytes = at::<u64>(header(index) + 0x20).unwrap_or(0) as u32;
                // The lower part of `sh_info` of a kernel's section is its symbol.
                let symbol = at::<u32>(header(index) + 0x2c).unwrap_or(0) & 0x00ff_ffff;
                kernels.push(Kernel { name, bytes, symbol });
            }
        }
        kernels
    }

    /// The words of an ELF file; empty for any other file.
    pub(super) fn copy(file: usize) -> Vec<u64> {
        let length = || {
            let (offset, count) = (at::<u64>(file + 0x28)?, at::<u16>(file + 0x3c)?);
            let header = |index: u64| file + (offset + index * 64) as usize;
            let mut end = offset + u64::from(count) * 64;
            for index in 0..u64::from(count) {
                // Sections without bytes in the file may state any size.
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
            let found = kernels(text.as_ptr().expose_provenance()).unwrap();
            let found: Vec<_> = found.into_iter().map(|kernel| kernel.name).collect();
            assert_eq!(found, [c"_Z4gemmPf".into(), CString::from(c"scan_2us")]);
        }

        #[test]
        fn an_unknown_image_tells_no_names() {
            let text = c"anything at all";
            assert!(kernels(text.as_ptr().expose_provenance()).is_none());
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
