//! The wheel `deepctx`: the Python module, to open profiles anywhere.
//!
//! Owns: its contents. Because: reading a profile in a notebook needs neither the profiler nor root. Does not: contain
//! the program; the wheel `deepctx-bpf` does, and neither needs the other.

use super::super::components;
use super::super::needs::Needs;
use super::super::tree::Tree;
use super::{Description, pack};
use crate::module;
use anyhow::Result;
use std::path::{Path, PathBuf};

const NAME: &str = "deepctx";

/// Text for the package index; pages of docs/ link to each other and would have dead links there.
const DESCRIPTION: &str = r#"# deepctx

Opens profiles of deep-learning processes, and what other profilers recorded (pprof, Kineto, rocprofv3, XPlane, Nsight
Systems, perf script, folded stacks): contexts to walk, filter and group, every table for pandas, polars and DuckDB without a copy,
findings, differences, flame graphs, and rules of your own.

```python
import deepctx

profile = deepctx.open("run.dctx")
for finding in profile.findings():
    print(finding.severity, finding.title)
hot = max(profile.walk(), key=lambda node: node.exclusive())
print(" → ".join(hot.path), hot.exclusive())
```

It needs no other package, no root and no profiler. `deepctx-bpf` records the profiles.
"#;

/// Packs the module of a tree.
pub(in super::super) fn make(library: &Path, tree: &Tree, parts: &Path, output: &Path) -> Result<PathBuf> {
    let folder = parts.join("module-wheel");
    module::lay_out(library, &folder.join(NAME))?;
    // The library's own platform: it may need an older glibc than the program.
    let platform = Needs::of(library)?.python_platform();
    let (major, minor) = module::OLDEST;
    let about = Description {
        name: NAME,
        summary: "Profiles of deep-learning processes: contexts, tables, findings and rules",
        python: &format!("{major}.{minor}"),
        tag: format!("cp{major}{minor}-abi3-{platform}"),
        more: "Classifier: Programming Language :: Python :: Implementation :: CPython\n\
               Classifier: Typing :: Typed\n",
        description: DESCRIPTION.to_owned(),
        components: components::document(NAME, "library", &["deepctx-python"], &tree.version)?,
    };
    pack(&folder, &about, tree, output)
}
