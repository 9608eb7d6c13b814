//! Other kernels: our programs must load, attach and give correct stacks on kernels of several Debian releases, each
//! booted in an emulator.
//!
//! Owns: the list of kernels, the guest's files, the verdict on its output. Because: each kernel has its own verifier,
//! and one accepts what another rejects. Does not: define the captures: `tests/kernels/init.sh` does.
//!
//! The guest has the product, three programs to profile, a simulated device, their libraries, and a shell, all in
//! memory; it needs no disk. Emulation without hardware help is some ten times slower than the machine, which is
//! enough.

use crate::apt::Apt;
use crate::{sh, sim};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel to boot.
struct Kernel {
    /// Debian release that contains it.
    suite: &'static str,
    /// Version prefix; empty for the newest.
    version: &'static str,
}

/// A selection of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernels {
    /// Debian's oldest supported kernel, and its newest.
    Ends,
    /// One with `uprobe_multi`, and one with uprobe sessions. Debian has no 5.15 or 6.6.
    Between,
}

impl Kernels {
    fn list(self) -> &'static [Kernel] {
        match self {
            Self::Ends => &[
                Kernel { suite: "bookworm", version: "6.1." },
                Kernel { suite: "trixie-backports", version: "" },
            ],
            Self::Between => &[
                Kernel { suite: "trixie", version: "6.12." },
                Kernel { suite: "trixie-backports", version: "6.16." },
            ],
        }
    }
}

const EMULATOR: &str = "qemu-system-x86_64";
/// A guest that runs longer hangs. Alone, one takes three minutes; beside tests and compilers it has a
/// third of that CPU time.
const SECONDS_MAX: u32 = 1200;
/// Without the 16-byte compare-and-exchange: the emulator's version (7.2) sometimes leaves an address in the flags,
/// which causes a double fault in the kernel's allocator. Kernels work without it if the processor lacks it.
const PROCESSOR: &str = "max,-cx16";
/// Checks printed by a guest.
const CHECKS: usize = 5;
/// Large parts of the standard library that nothing here imports.
const NOT_IMPORTED: [&str; 8] = [
    "test",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "pydoc_data",
];

/// Why this cannot run here; `None` when it can.
pub(crate) fn not_here_because() -> Option<String> {
    let needs = [EMULATOR, "busybox", "cpio", "apt-get", "dpkg-deb", "c++"];
    let missing = needs.into_iter().find(|program| sh::which(program).is_none());
    missing.map(|program| format!("no {program} here (cargo xtask setup --tests installs it)"))
}

/// Fetches missing images of these kernels.
pub(crate) fn fetch(kernels: Kernels) -> Result<Vec<PathBuf>> {
    let folder = folder()?;
    kernels.list().iter().map(|kernel| kernel.image(&folder)).collect()
}

/// Folder of the images.
fn folder() -> Result<PathBuf> {
    let folder = sh::target_dir().join("kernels");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Boots these kernels with this product. Returns a line for each.
pub(crate) fn run(kernels: &[Kernels], product: &Path) -> Result<Vec<String>> {
    let guest = Guest::made(&folder()?, product)?;
    let mut lines = Vec::new();
    for kernels in kernels {
        for image in fetch(*kernels)? {
            lines.push(guest.boot_twice(&image).with_context(|| format!("on {}", image.display()))?);
        }
    }
    Ok(lines)
}

impl Kernel {
    /// Its image, fetched and unpacked.
    fn image(&self, folder: &Path) -> Result<PathBuf> {
        let name =
            format!("{}-{}", self.suite, if self.version.is_empty() { "newest" } else { self.version });
        let root = folder.join(name.trim_end_matches('.'));
        if let Some(image) = image_below(&root) {
            return Ok(image);
        }
        sh::step(
            &format!("fetch the kernel {}* of Debian {}", self.version, self.suite),
            "the programs are tested on it in an emulator; it is unpacked aside, not installed",
        );
        let apt = Apt::of(&folder.join("apt").join(self.suite), "deb", self.suite)?;
        apt.update()?;
        let pattern = r"^linux-(image|binary|binary-unsigned)-[0-9].*-cloud-amd64$";
        let listed = sh::output(apt.command("apt-cache").args(["search", "--names-only", pattern]))?;
        let packages = listed.lines().filter_map(|line| line.split_whitespace().next());
        let newest = packages.filter(|package| version(package).starts_with(self.version)).max_by(|a, b| {
            // Of one version, prefer the package with the image itself to the one that refers to it.
            (numbers(version(a)), a.starts_with("linux-binary"))
                .cmp(&(numbers(version(b)), b.starts_with("linux-binary")))
        });
        let package = newest.with_context(|| format!("Debian {} has no such kernel", self.suite))?;
        apt.unpack(&[package], &root)?;
        image_below(&root).with_context(|| format!("{package} holds no kernel image"))
    }
}

/// `6.1.0-56-cloud-amd64` of `linux-image-6.1.0-56-cloud-amd64`.
fn version(package: &str) -> &str {
    package.find(|c: char| c.is_ascii_digit()).map_or("", |at| &package[at..])
}

/// The numbers of a version, for comparison.
fn numbers(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn image_below(root: &Path) -> Option<PathBuf> {
    let boot = fs::read_dir(root.join("boot")).into_iter().flatten();
    let modules = fs::read_dir(root.join("usr/lib/modules")).into_iter().flatten();
    let modules = modules.flatten().flat_map(|module| fs::read_dir(module.path()).into_iter().flatten());
    let mut files = boot.chain(modules).flatten().map(|entry| entry.path());
    files.find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz")))
}

/// The initial file system of every kernel.
struct Guest {
    archive: PathBuf,
}

impl Guest {
    fn made(folder: &Path, product: &Path) -> Result<Self> {
        let root = folder.join("guest");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(root.join("bin"))?;
        let workload = compiled("deep_native", &root)?;
        let launches = compiled("gpu_launch", &root)?;
        sim::run()?;
        let device = root.join("sim/libcuda.so.1");
        fs::create_dir_all(root.join("sim"))?;
        let built = sim::folder().join("cuda13/libcuda.so.1");
        sh::run(Command::new("strip").args(["--strip-debug", "-o"]).args([&device, &built]))?;
        let own = root.join("bin/deepctx-bpf");
        sh::run(Command::new("strip").args(["--strip-debug", "-o"]).args([&own, product]))?;
        fs::copy(sh::which("busybox").context("no busybox here")?, root.join("bin/busybox"))?;
        let python = Python::found()?;
        python.put_below(&root)?;
        for program in [&workload, &launches, &device, &own, &python.program] {
            put_libraries(program, &root)?;
        }
        fs::copy(sh::root().join("tests/kernels/chain.py"), root.join("chain.py"))?;
        let script = fs::read_to_string(sh::root().join("tests/kernels/init.sh"))?;
        let exports =
            format!("\nexport PYTHON={} PYTHONHOME={}\n", python.program.display(), python.prefix.display());
        let (first, rest) = script.split_once('\n').context("an empty script")?;
        fs::write(root.join("init"), format!("{first}{exports}{rest}"))?;
        fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
        let archive = folder.join("guest.cpio.gz");
        let pack = "find . | cpio --quiet -o -H newc | gzip -1 > \"$0\"";
        sh::run(Command::new("sh").args(["-c", pack]).arg(&archive).current_dir(&root))?;
        Ok(Self { archive })
    }

    /// Boots a kernel, and once more if a check fails. The result of the first boot stays in the line: an emulated CPU
    /// that a busy machine starves for seconds can miss a deadline of the profiler, which a defect misses each time.
    fn boot_twice(&self, image: &Path) -> Result<String> {
        let first = match self.boot(image) {
            Ok(line) => return Ok(line),
            Err(error) => error,
        };
        eprintln!("{first:#}");
        let second = self.boot(image).with_context(|| format!("and before: {first:#}"))?;
        Ok(format!(
            "{second} (second boot; before: {})",
            first.to_string().lines().next().unwrap_or_default()
        ))
    }

    /// Boots a kernel and checks the guest's output.
    fn boot(&self, image: &Path) -> Result<String> {
        let mut emulator = Command::new("timeout");
        emulator.arg(SECONDS_MAX.to_string()).arg(EMULATOR);
        // With a thread per CPU, one sometimes executes half of what another has just patched in the kernel (7.3: one
        // run of three). A single thread for all avoids this.
        emulator.args(["-accel", "tcg,thread=single", "-cpu", PROCESSOR, "-smp", "2"]);
        emulator.args(["-m", "2048", "-nic", "none", "-nographic", "-no-reboot"]);
        emulator.args(["-append", "console=ttyS0 quiet panic=-1", "-kernel"]);
        emulator.arg(image).arg("-initrd").arg(&self.archive).stdin(std::process::Stdio::null());
        eprintln!("  $ {}", sh::words(&emulator));
        let output = emulator.output().context("cannot start the emulator")?;
        judge(&String::from_utf8_lossy(&output.stdout))
    }
}

/// Summarizes a guest's output, its kernel and checks, in one line.
fn judge(said: &str) -> Result<String> {
    let lines = said.lines().map(str::trim);
    let kernel = lines.clone().find_map(|line| line.split_once("guest kernel "));
    let kernel = kernel.map_or("a kernel that did not say its version", |(_, version)| version);
    let checks: Vec<&str> = lines.filter_map(|line| line.strip_prefix("check ")).collect();
    for check in &checks {
        let (name, counts) = check.split_once(": ").with_context(|| format!("not a check: {check}"))?;
        let (matching, all) = counts.split_once(" of ").with_context(|| format!("not a check: {check}"))?;
        let number = |text: &str| text.parse::<u64>().with_context(|| format!("not a check: {check}"));
        let (matching, all) = (number(matching)?, number(all)?);
        // Occasionally a sample falls between two calls of the chain, or before the first.
        let share = if name.contains("off-cpu") { 10 } else { 95 };
        ensure!(all >= 50 && matching * 100 >= all * share, "{kernel}: {check}\n{said}");
    }
    if checks.len() != CHECKS {
        bail!("{kernel}: {} of {CHECKS} checks were made\n{said}", checks.len());
    }
    Ok(format!("{kernel}: {}", checks.join(", ")))
}

/// The Python of this machine.
struct Python {
    program: PathBuf,
    prefix: PathBuf,
    library: PathBuf,
}

impl Python {
    fn found() -> Result<Self> {
        let words = "import os, sys; print(os.path.realpath(sys.executable), sys.base_prefix, os.path.dirname(os.__file__), sep='\\n')";
        let said = sh::output(Command::new("python3").args(["-c", words]))?;
        let mut lines = said.lines().map(PathBuf::from);
        let mut next = || lines.next().context("python3 does not say where it is");
        Ok(Self { program: next()?, prefix: next()?, library: next()? })
    }

    /// Copies it to the same path below `root`.
    fn put_below(&self, root: &Path) -> Result<()> {
        copy(&self.program, root)?;
        let mut folders = vec![self.library.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let (path, name) = (entry.path(), entry.file_name());
                let left_out = NOT_IMPORTED.iter().any(|part| name == *part);
                if left_out || name.as_encoded_bytes().starts_with(b"config-") {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|kind| kind == "py" || kind == "so") {
                    copy(&path, root)?;
                }
            }
        }
        Ok(())
    }
}

/// Compiles a workload into the guest, without frame pointers.
fn compiled(name: &str, root: &Path) -> Result<PathBuf> {
    let program = root.join("bin").join(name);
    let source = sh::root().join("tests/workloads").join(name).with_extension("cpp");
    let mut compile = Command::new("c++");
    compile.args(["-std=c++17", "-O2", "-fomit-frame-pointer", "-pthread", "-o"]).arg(&program).arg(source);
    sh::run(compile.arg("-ldl"))?;
    Ok(program)
}

/// Copies a file to the same path below `root`.
fn copy(path: &Path, root: &Path) -> Result<()> {
    let to = root.join(path.strip_prefix("/").unwrap_or(path));
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(path, &to).with_context(|| format!("cannot copy {}", path.display()))?;
    Ok(())
}

/// Copies a program's libraries, as listed by the dynamic loader.
fn put_libraries(program: &Path, root: &Path) -> Result<()> {
    let said = sh::output(Command::new("ldd").arg(program)).unwrap_or_default();
    for line in said.lines() {
        let words = line.split_whitespace();
        if let Some(path) = words.into_iter().find(|word| word.starts_with('/')) {
            copy(Path::new(path), root)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\u{1b}c[0mguest kernel 6.1.0-56\r\ncheck native samples: 299 of 300\r\ncheck native samples: 300 of 300\r\n\
        check python samples: 290 of 300\r\ncheck python off-cpu-time: 400000 of 900000\r\n\
        check launches kernels: 1000 of 1000\r\n";

    #[test]
    fn a_guest_passes_when_every_check_was_made_and_holds() {
        let check = |said: &str| {
            judge(said).map_err(|error| error.to_string().lines().next().unwrap_or("").to_owned())
        };
        assert!(check(GOOD).is_ok_and(|line| line.starts_with("6.1.0-56: native samples: 299 of 300")));
        assert_eq!(
            check(&GOOD.replace("290 of", "200 of")),
            Err("6.1.0-56: python samples: 200 of 300".into())
        );
        assert_eq!(
            check(&GOOD.replace("299 of 300", "0 of 0")),
            Err("6.1.0-56: native samples: 0 of 0".into())
        );
        let shorter = GOOD.replace("check python off-cpu-time: 400000 of 900000", "failed");
        assert_eq!(check(&shorter), Err("6.1.0-56: 4 of 5 checks were made".into()));
        assert_eq!(
            check("panic"),
            Err("a kernel that did not say its version: 0 of 5 checks were made".into())
        );
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(
            numbers(version("linux-image-6.16.12+deb13-cloud-amd64")) > numbers(version("linux-image-6.9.1"))
        );
        assert_eq!(version("linux-binary-unsigned-7.3.4+deb13-cloud-amd64"), "7.3.4+deb13-cloud-amd64");
    }
}
