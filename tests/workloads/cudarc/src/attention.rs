//! Attention: whether a profiler watches this process.
//!
//! Owns: the code of a launch, in memory and in its file. Because: counts match only if the first launch is seen, too.
//! Does not: call the driver.

use std::ffi::c_void;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use cudarc::driver::sys::culib;
use libloading::{Library, Symbol};

/// Bytes of a function that may contain the probed instruction.
const BYTES: usize = 64;
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(10);

/// The code of `cuLaunchKernel`.
pub(crate) struct Code {
    at: *const [u8; BYTES],
    /// The code in the file has no probe, even if the profiler was faster than this program.
    in_file: [u8; BYTES],
}

impl Code {
    /// The code of the loaded driver.
    pub(crate) fn of_launch() -> io::Result<Self> {
        // SAFETY: the symbol is a function, of which only the address is taken.
        let launch: Symbol<'_, *const c_void> =
            unsafe { culib().get(b"cuLaunchKernel\0") }.map_err(io::Error::other)?;
        let at = launch.cast::<[u8; BYTES]>();
        for line in fs::read_to_string("/proc/self/maps")?.lines() {
            if let Some((offset, path)) = place(line, at.addr() as u64) {
                let mut in_file = [0; BYTES];
                fs::File::open(path)?.read_exact_at(&mut in_file, offset)?;
                return Ok(Self { at, in_file });
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Waits until a probe is on the function, and until the collector, if one is loaded, has listeners.
    pub(crate) fn wait_for_attention(&self) -> Result<(), String> {
        let end = Instant::now() + LONGEST;
        // SAFETY: code of a library that stays loaded, longer than this many bytes; the kernel writes a probe into it.
        while unsafe { self.at.read_volatile() } == self.in_file {
            if Instant::now() > end {
                return Err("nobody watches".into());
            }
            std::thread::sleep(STEP);
        }
        if let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH") {
            // SAFETY: the driver has loaded it already.
            let collector = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
            // SAFETY: the collector declares it as two bytes, which the profiler changes.
            let listeners: Symbol<'_, *const u16> =
                unsafe { collector.get(b"deepctx_collector_listeners\0") }
                    .map_err(|error| error.to_string())?;
            // SAFETY: as above.
            while unsafe { listeners.read_volatile() } == 0 && Instant::now() < end {
                std::thread::sleep(STEP);
            }
        }
        // The other probes follow directly, and the collector polls ten times a second.
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    }
}

/// Offset of an address in the file of one line of `maps`, if the mapping contains it; and the path.
fn place(line: &str, address: u64) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (begin, end) = (number(begin)?, number(end)?);
    let offset = number(words.nth(1)?)?;
    let path = line.find('/').map(|at| &line[at..])?;
    (begin..end).contains(&address).then(|| (address - begin + offset, path))
}
