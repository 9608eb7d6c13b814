//! `cargo xtask dist`: release packages, so that nobody needs a compiler: an archive, a Debian package, two wheels.
//!
//! Owns: the order of steps, and the folder `target/dist`. Because: users who compare profilers have a minute, and a
//! compiler takes ten. Does not: publish anything.
//!
//! ```text
//! build    a program for a target: for every distribution since glibc 2.31, or with musl (zig links it); or --product
//! split    debug information apart, linked by name and checksum
//! tree     what every package holds: bin, lib, manual pages, completions, licences
//! archive, deb, wheel    the tree in three forms, and the wheel of the Python module
//! sums     SHA256SUMS, the list of components (CycloneDX), how it was built
//! check    each one installed where nothing else is, and run; made twice, the bytes are the same
//! minute   how long it takes from nothing to a flame graph, beside other profilers
//! ```

mod archive;
mod build;
mod check;
mod chroot;
mod components;
mod deb;
mod first_minute;
mod image;
mod needs;
mod product;
mod programs;
mod target;
mod tree;
mod wheel;

use crate::{module, sh};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(crate) use check::of_product;

use archive::Effort;
use build::Optimization;
use needs::Needs;
use product::Product;
use target::Target;
use tree::Tree;

/// Options of `cargo xtask dist`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Pack this program, with the collector and the Python module's library beside it, instead of building one.
    #[arg(long, value_name = "FILE")]
    product: Option<PathBuf>,
    /// Where the packages go.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Build for this target instead of this machine with glibc.
    #[arg(long, value_enum, conflicts_with = "product")]
    target: Option<Target>,
    /// Do not optimize: to see whether a target links, in a fraction of the time.
    #[arg(long, conflicts_with = "product")]
    unoptimized: bool,
    /// Build and pack a second time, from nothing: the bytes must be the same.
    #[arg(long, conflicts_with = "product")]
    twice: bool,
    /// Then install each package where nothing else is, and run it.
    #[arg(long)]
    check: bool,
    /// Then time the first minute with each package on a fresh Debian without Rust, beside py-spy and perf (needs root,
    /// and PyTorch as the tests install it).
    #[arg(long)]
    first_minute: bool,
    /// Then install the Debian package on these releases of Debian, each in a folder of its own (needs root).
    #[arg(long, value_name = "SUITE", num_args = 1.., value_delimiter = ',')]
    releases: Vec<String>,
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    let output = options.output.clone().unwrap_or_else(|| sh::target_dir().join("dist"));
    let output = std::path::absolute(output)?;
    let target = options.target.unwrap_or_else(Target::here);
    programs::check(options, target)?;
    let optimization = if options.unoptimized { Optimization::None } else { Optimization::Whole };
    let product = match &options.product {
        Some(program) => Product::given(program, &program.with_file_name(module::LIBRARY)),
        None => build::build(target, optimization)?,
    };
    let packages = pack(&product, &output, Effort::Usual)?;
    if options.twice {
        // At the same path, because the program contains paths of generated files.
        sh::remove(&build::folder())?;
        let again =
            pack(&build::build(target, optimization)?, &output.with_extension("again"), Effort::Usual)?;
        check::equal(&packages, &again)?;
        println!("built twice: the bytes are the same");
    }
    if options.check {
        check::check(&packages)?;
    }
    for suite in &options.releases {
        chroot::check(&packages, suite)?;
    }
    if options.first_minute {
        first_minute::time(&packages)?;
    }
    for package in packages.all() {
        let bytes = std::fs::metadata(package)?.len();
        println!("{:>7.1} MiB  {}", bytes as f64 / f64::from(1 << 20), package.display());
    }
    // Last, because the other results matter even if a package is too large.
    if options.product.is_none() && !options.unoptimized {
        check::sizes(&packages)?;
    }
    Ok(())
}

/// All packages.
struct Packages {
    target: Target,
    archive: PathBuf,
    /// Debug information of the program and the collector.
    debug: PathBuf,
    /// `None` for musl, which Debian does not use.
    deb: Option<PathBuf>,
    wheel: PathBuf,
    /// The wheel of the Python module; `None` for musl.
    module: Option<PathBuf>,
    /// Size of the program without its debug information.
    program: u64,
    /// Linked components, build provenance, and checksums of all packages.
    about: [PathBuf; 3],
}

impl Packages {
    /// Name of the archive without its extension, and of its folder.
    fn stem(&self) -> String {
        let name = self.archive.file_name().unwrap_or_default().to_string_lossy();
        name.trim_end_matches(".tar.xz").to_owned()
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        let always = [&self.archive, &self.debug, &self.wheel];
        always.into_iter().chain(&self.deb).chain(&self.module).chain(&self.about)
    }
}

/// Makes all packages of a program. Replaces the folder's contents.
fn pack(product: &Product, output: &Path, effort: Effort) -> Result<Packages> {
    sh::step("pack", "an archive, a Debian package and a wheel of the same files, and the Python module");
    sh::remove(output)?;
    let parts = output.join("parts");
    std::fs::create_dir_all(&parts)?;
    let needs = Needs::of(&product.program)?;
    let tree = Tree::make(product, &needs, &parts)?;
    let archive = archive::make(&tree.root, &tree.stem, effort, output)?;
    let debug = archive::make(&tree.debug, &format!("{}-debug", tree.stem), effort, output)?;
    let deb = || deb::make(&tree, &needs, effort, &parts, output);
    let deb = (!product.target.is_musl()).then(deb).transpose()?;
    let wheel = wheel::program::make(&tree, &needs, &parts, output)?;
    let module = |library: &PathBuf| wheel::module::make(library, &tree, &parts, output);
    let module = tree.module.as_ref().map(module).transpose()?;
    let program = std::fs::metadata(tree.root.join(tree::PROGRAM))?.len();
    let components = components::list(&tree, output)?;
    let built = build::provenance(product, &tree, &needs, output)?;
    std::fs::remove_dir_all(&parts)?;
    let sums = output.join("SHA256SUMS");
    let made = [&archive, &debug, &wheel, &components, &built].into_iter().chain(&deb).chain(&module);
    let names = made.map(|path| path.file_name().unwrap_or_default());
    let text = sh::output(sh::command("sha256sum").current_dir(output).args(names))?;
    std::fs::write(&sums, text + "\n")?;
    let (target, about) = (product.target, [components, built, sums]);
    Ok(Packages { target, archive, debug, deb, wheel, module, program, about })
}

/// The timestamp of all files of a package, in seconds since 1970: that of the last commit, so that equal sources
/// produce equal bytes.
fn epoch() -> Result<String> {
    if let Some(epoch) = std::env::var_os("SOURCE_DATE_EPOCH") {
        return epoch.into_string().ok().context("SOURCE_DATE_EPOCH is no number");
    }
    sh::output(sh::command("git").args(["log", "-1", "--format=%ct"]))
        .context("no commit to take the time of")
}
