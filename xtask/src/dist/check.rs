//! The check: each package, unpacked or installed on an empty system, runs and is complete.
//!
//! Owns: the requirements on a package. Because: otherwise users notice a missing file. Does not: test the program; the
//! same one has passed its tests.

use super::archive::Effort;
use super::needs::Needs;
use super::product::Product;
use super::tree::{COLLECTOR, NAME, PAGES, PROGRAM};
use super::{Packages, deb, image, pack};
use crate::{module, sh};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// For tests: packs a program and the module's library twice, and checks the packages.
pub(crate) fn of_product(program: &Path, library: &Path) -> Result<()> {
    let product = Product::given(program, library);
    let folder = sh::target_dir().join("dist-check");
    let packages = pack(&product, &std::path::absolute(folder.join("one"))?, Effort::Least)?;
    let again = pack(&product, &std::path::absolute(folder.join("two"))?, Effort::Least)?;
    equal(&packages, &again)?;
    check(&packages)
}

/// Packages built twice must have the same bytes.
pub(super) fn equal(packages: &Packages, again: &Packages) -> Result<()> {
    let sums = |packages: &Packages| fs::read_to_string(&packages.about[2]);
    let (first, second) = (sums(packages)?, sums(again)?);
    ensure!(first == second, "made twice, the bytes differ:\n{first}\nand\n{second}");
    Ok(())
}

/// Checks the packages.
pub(super) fn check(packages: &Packages) -> Result<()> {
    sh::step("check the packages", "each one, where nothing else is installed");
    let folder = packages.archive.with_file_name("check");
    sh::remove(&folder)?;
    fs::create_dir_all(&folder)?;
    if packages.target.is_foreign() {
        foreign(packages, &folder).context("what is for another machine")?;
    } else {
        archive(packages, &folder).context("the archive")?;
        if let Some(deb) = &packages.deb {
            debian(deb, &folder).context("the Debian package")?;
        }
        if packages.target.is_musl() {
            image::check(packages, &folder).context("the container image")?;
        } else {
            // pip installs musl wheels only on musl systems.
            wheel(packages, &folder).context("the wheel")?;
        }
        if let Some(module) = &packages.module {
            module_wheel(module, &folder.join("module")).context("the wheel of the Python module")?;
        }
    }
    sh::output(
        sh::command("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(folder_of(packages)?),
    )?;
    Ok(fs::remove_dir_all(&folder)?)
}

/// Size limits, 15 MiB for the program and 8 MiB per wheel: they are fetched over slow networks and into containers.
pub(super) fn sizes(packages: &Packages) -> Result<()> {
    let program = ("the program without debug information", packages.program, 15);
    let module = packages.module.iter().map(|path| ("the wheel of the Python module", path));
    let wheels = std::iter::once(("the wheel", &packages.wheel)).chain(module);
    let wheels = wheels.map(|(what, path)| fs::metadata(path).map(|found| (what, found.len(), 8)));
    for size in std::iter::once(Ok(program)).chain(wheels) {
        let (what, bytes, most) = size?;
        ensure!(bytes <= most << 20, "{what} has {bytes} bytes, more than {most} MiB");
    }
    Ok(())
}

fn folder_of(packages: &Packages) -> Result<&Path> {
    packages.archive.parent().context("a package without a folder")
}

fn archive(packages: &Packages, folder: &Path) -> Result<()> {
    installed(&unpacked(packages, folder)?)
}

/// The folder of the unpacked archive.
fn unpacked(packages: &Packages, folder: &Path) -> Result<PathBuf> {
    sh::output(sh::command("tar").arg("-xf").arg(&packages.archive).arg("-C").arg(folder))?;
    Ok(folder.join(packages.stem()))
}

/// A package for another machine starts under emulation and opens another tool's profile; capturing is impossible
/// there. All its parts are for that machine, and the metadata states that.
fn foreign(packages: &Packages, folder: &Path) -> Result<()> {
    let (target, prefix) = (packages.target, unpacked(packages, folder)?);
    let program = prefix.join(PROGRAM);
    let said = sh::output(target.command(&program).arg("--version"))?;
    ensure!(said.starts_with("deepctx-bpf "), "`{} --version` says {said}", program.display());
    for part in [PROGRAM, COLLECTOR] {
        let needs = Needs::of(&prefix.join(part))?;
        ensure!(needs.machine == target.machine(), "{part} is for {}", needs.machine);
        ensure!(needs.others().count() == 0, "{part} needs {:?}", needs.libraries);
    }
    let stacks = folder.join("stacks.folded");
    fs::write(&stacks, "main;work 30\nmain;rest 10\n")?;
    let mut report = target.command(&program);
    let report = sh::output(report.args(["report", "--format", "json"]).arg(&stacks))?;
    ensure!(report.contains("\"work\""), "the report knows nothing of the stacks: {report}");
    if let Some(deb) = &packages.deb {
        let machine = sh::output(sh::command("dpkg-deb").arg("--field").arg(deb).arg("Architecture"))?;
        ensure!(machine == target.debian_architecture(), "the Debian package is for {machine}");
    }
    for wheel in std::iter::once(&packages.wheel).chain(&packages.module) {
        let tag = format!("_{}.whl", target.machine());
        ensure!(wheel.to_string_lossy().ends_with(&tag), "{} is not for {tag}", wheel.display());
    }
    Ok(())
}

fn debian(deb: &Path, folder: &Path) -> Result<()> {
    let root = folder.join("deb");
    sh::output(sh::command("dpkg-deb").arg("--extract").arg(deb).arg(&root))?;
    installed(&root.join("usr"))?;
    service(&root).context("the systemd service")?;
    let changes = root.join("usr/share/doc").join(NAME).join("changelog.gz");
    ensure!(changes.is_file(), "no {}", changes.display());
    let listed = sh::output(sh::command("dpkg-deb").arg("--contents").arg(deb))?;
    let foreign = listed.lines().find(|line| !line.contains(" root/root "));
    ensure!(foreign.is_none(), "not root's: {}", foreign.unwrap_or_default());
    if sh::which("lintian").is_none() {
        println!("note: the package was not shown to lintian, which is not installed here");
        return Ok(());
    }
    // Not an upload to Debian's own archive, which would close a bug report. zlib is linked statically, so that one
    // package serves all releases.
    let suppress = ["--suppress-tags", "initial-upload-closes-no-bugs,embedded-library"];
    sh::run(sh::command("lintian").args(["--fail-on", "error,warning"]).args(suppress).arg(deb))
}

/// The service's command can capture with exactly the capabilities that the unit grants.
fn service(root: &Path) -> Result<()> {
    let path = root.join(deb::UNIT);
    let unit = fs::read_to_string(&path)?;
    let setting = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.with_context(|| format!("no {name} in {}", path.display()))
    };
    let bounds = setting("CapabilityBoundingSet")?.split(' ').map(|name| {
        let name = name.strip_prefix("CAP_").with_context(|| format!("{name} is no capability"))?;
        Ok(format!(",+{}", name.to_lowercase()))
    });
    let bounds: String = bounds.collect::<Result<_>>()?;
    let folder = root.join("state");
    fs::create_dir_all(&folder)?;
    let command = setting("ExecStart")?.replace("${STATE_DIRECTORY}", &folder.to_string_lossy());
    let mut words = command.split(' ');
    let program = words.next().and_then(|program| program.strip_prefix('/')).context("no program")?;
    let mut limited = sh::as_root("setpriv", &[]);
    limited.args(["--no-new-privs", "--inh-caps=-all", &format!("--bounding-set=-all{bounds}")]);
    sh::output(limited.arg(root.join(program)).args(words).args(["--duration", "1s"]))?;
    let mut report = sh::as_root(root.join(program), &[]);
    let written = sh::output(report.arg("report").arg(folder.join("run.dctx")))?;
    sh::output(sh::as_root("rm", &[]).arg("-r").arg(&folder))?;
    ensure!(written.contains("kept by a flight recorder (end)"), "the service wrote {written}");
    Ok(())
}

fn wheel(packages: &Packages, folder: &Path) -> Result<()> {
    let environment = Environment::with(&packages.wheel, folder.join("venv"))?;
    installed(&environment.folder)?;
    let said = sh::output(environment.python().args(["-m", "deepctx_bpf", "--version"]))?;
    ensure!(said.starts_with("deepctx-bpf "), "`python -m deepctx_bpf --version` says {said}");
    environment.uninstall(NAME)
}

/// In an otherwise empty environment, the module opens a profile and its doc examples are correct; another package
/// reads a table; type checkers find the installed types.
fn module_wheel(wheel: &Path, folder: &Path) -> Result<()> {
    let environment = Environment::with(wheel, folder.to_owned())?;
    let tools = module::environment()?;
    let sources = sh::root().join("python");
    let mut script = environment.python();
    script.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&sources);
    let arrow = sh::output(
        Command::new(tools.join("bin/python")).args(["-c", "import pyarrow as p; print(p.__file__)"]),
    )?;
    let arrow = Path::new(&arrow).ancestors().nth(2).context("pyarrow lies nowhere")?;
    sh::output(script.arg("tests/installed.py").arg(arrow))?;
    let interpreter = environment.folder.join("bin/python");
    let mut types = Command::new(tools.join("bin/mypy"));
    // Not in the source folder, which would be imported instead of the package.
    types
        .args(["--strict", "--cache-dir=/dev/null", "--python-executable"])
        .current_dir(sources.join("examples"));
    sh::output(types.arg(&interpreter).arg("rules.py"))?;
    let mut types = Command::new(tools.join("bin/pyright"));
    // It asks the first `python` in PATH for packages, and node is among the tools.
    let path = sh::path_with(&[&environment.folder.join("bin"), &tools.join("bin")])?;
    types.args(["--verifytypes", "deepctx", "--ignoreexternal"]).current_dir(folder).env("PATH", path);
    sh::output(&mut types)?;
    environment.uninstall("deepctx")
}

/// A Python environment with one package.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    fn with(wheel: &Path, folder: PathBuf) -> Result<Self> {
        sh::output(sh::command("python3").args(["-m", "venv"]).arg(&folder))?;
        let environment = Self { folder };
        sh::output(environment.pip(&["install", "--no-index"]).arg(wheel))?;
        Ok(environment)
    }

    fn python(&self) -> Command {
        Command::new(self.folder.join("bin/python"))
    }

    fn pip(&self, arguments: &[&str]) -> Command {
        let mut command = self.python();
        command.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]).args(arguments);
        command
    }

    /// Uninstalls the package; nothing may remain.
    fn uninstall(&self, name: &str) -> Result<()> {
        sh::output(&mut self.pip(&["uninstall", "--yes", name]))?;
        let left = sh::files_below(&self.folder, "").into_iter().find(|path| is_ours(path));
        ensure!(left.is_none(), "pip leaves {}", left.unwrap_or_default().display());
        Ok(())
    }
}

fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("deepctx"))
}

/// Checks that apply to any prefix.
pub(super) fn installed(prefix: &Path) -> Result<()> {
    let program = prefix.join(PROGRAM);
    let said = sh::output(Command::new(&program).arg("--version"))?;
    ensure!(said.starts_with("deepctx-bpf "), "`{} --version` says {said}", program.display());
    ensure!(prefix.join(COLLECTOR).is_file(), "no {COLLECTOR}");
    let pages: Vec<PathBuf> = sh::files_below(&prefix.join("share/man/man1"), ".1.gz");
    ensure!(pages.iter().any(|page| page.ends_with("deepctx-bpf-record.1.gz")), "manual pages: {pages:?}");
    let script = prefix.join("share/bash-completion/completions/deepctx-bpf");
    let complete = "source \"$1\"; COMP_WORDS=(deepctx-bpf rec); COMP_CWORD=1; _deepctx__bpf deepctx-bpf rec deepctx-bpf; echo \"${COMPREPLY[*]}\"";
    let found = sh::output(Command::new("bash").args(["-c", complete, "bash"]).arg(&script))?;
    ensure!(found == "record", "bash completes `deepctx-bpf rec` to {found:?}");
    let pages = prefix.join("share/doc").join(NAME).join(PAGES);
    hints_name(&program, &pages.join("findings.md"))?;
    captures(&program)
}

/// Hints lead to installed pages.
fn hints_name(program: &Path, page: &Path) -> Result<()> {
    ensure!(page.is_file(), "no {}", page.display());
    let mut wrong = Command::new(program);
    wrong.args(["analyze", "--fail-on", "no-such-rule", "/dev/null"]);
    let said = String::from_utf8_lossy(&wrong.output()?.stderr).into_owned();
    let page = page.canonicalize()?;
    ensure!(said.contains(&*page.to_string_lossy()), "no hint leads to {}: {said}", page.display());
    Ok(())
}

/// It captures with its bundled parts: the kernel programs, the workers, the collector's location.
fn captures(program: &Path) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("deepctx-dist-{}", std::process::id()));
    let profile = folder.join("run.dctx");
    fs::create_dir_all(&folder)?;
    let mut record = sh::as_root(program, &[]);
    record.args(["record", "--gpu-activity", "--force", "-o"]).arg(&profile);
    let counted = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let recorded = sh::output(record.args(["--", "sh", "-c", counted]));
    let report = recorded.and_then(|_| {
        sh::output(sh::as_root(program, &[]).args(["report", "--format", "json"]).arg(&profile))
    });
    sh::output(sh::as_root("rm", &[]).arg("-r").arg(&folder))?;
    let report: serde_json::Value = serde_json::from_str(&report?)?;
    let samples = report["values"].as_u64();
    ensure!(samples.is_some_and(|samples| samples > 0), "nothing was recorded: {report}");
    Ok(())
}
