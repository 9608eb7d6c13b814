//! Fuzz targets: every parser of foreign bytes, each as a function of one input that must not panic.
//!
//! Owns: the interpretation of an input, the invariants of its result, and the seed inputs. Because: a fuzzer and the
//! tests run the same code. Does not: generate inputs: `tests/fuzz` runs a fuzzer, and `tests/kept_inputs.rs` mutates
//! kept inputs.

pub mod calls;
pub mod compiled;
pub mod figures;
pub mod imports;
pub mod probes;
pub mod python;
pub mod queries;
pub mod stored;
pub mod symbols;
pub mod traces;
pub mod unwind_rows;

use std::fs;
use std::io;
use std::path::Path;

/// One target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of its module.
    pub name: &'static str,
    /// Runs one input. Panics if an invariant is violated.
    pub run: fn(&[u8]),
    /// Seed files, as paths from the root of the repository, each with the prefix bytes that select its format.
    files: &'static [(&'static [u8], &'static str)],
    /// Seed texts.
    texts: &'static [&'static str],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "calls",
        run: calls::run,
        files: &[
            (&[1], "symbolizer/tests/fixtures/cubin/cuda13.cubin"),
            (&[1], "symbolizer/tests/fixtures/cubin/lines13.cubin"),
            (&[2], "symbolizer/tests/fixtures/cubin/lz4.fatbin"),
            (&[2], "symbolizer/tests/fixtures/cubin/zstd.fatbin"),
        ],
        texts: &["\0"],
    },
    Target {
        name: "compiled",
        run: compiled::run,
        files: &[
            (&[0], "symbolizer/tests/fixtures/xla/wrapped_add.1.o"),
            (&[1], "symbolizer/tests/fixtures/xla/train_step.cpu_after_optimizations.txt"),
            (&[3], "symbolizer/tests/fixtures/inductor/device_wrapper.py"),
            (&[4], "symbolizer/tests/fixtures/inductor/device_graph.txt"),
            (b"\x05scale_shift\n", "symbolizer/tests/fixtures/triton/scale_shift.ttir"),
        ],
        texts: &["\x06triton_poi_fused_add_mul_relu_0"],
    },
    Target {
        name: "figures",
        run: figures::run,
        files: &[],
        texts: &[
            // A call with a stack, its return, a correlation id, device activity, and the passage of time.
            "\x04\0\0\x05\x01\x01\x07\0\0\0\0\x07\x02\x01\x02\x03\x04\0\0\x02\x01\x07\x01\x08\x01",
            "\x08\0\0\x09\x07\x05\x01\x02\x01\x01\x01\x01\x09\0\0\x09\x07\x01\x01\x01\x01",
            "\x0a\0\0\x0c\x01\x01\x01\x02\x03\x02\x01\x01\x01\x01\x01\x01\x01\0\0\0\x01\x05\x09\x11\x7f",
        ],
    },
    Target {
        name: "imports",
        run: imports::run,
        files: &[
            (&[], "analysis/tests/traces/eventsync-a100.json.gz"),
            (&[], "profile/storage/tests/fixtures/nsys.sqlite"),
        ],
        texts: &[
            "main;train;forward 12\nmain;train;backward 30\n",
            "python 7/7 [001] 12.345678: 250000 cpu-clock:\n\t55d0 main+0x12 (/usr/bin/python3)\n\n",
            r#"{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1.5,"dur":2,"pid":0,"tid":7,"args":{}}]}"#,
        ],
    },
    Target {
        name: "probes",
        run: probes::run,
        files: &[(&[0], "symbolizer/tests/fixtures/xla/wrapped_add.1.o")],
        texts: &[
            "\x01[[probe]]\nlibrary = \"libx.so\"\nsymbols = [\"f\"]\n",
            "\x02stapsdt 8@%rdi",
            "\x03UH\u{9}",
        ],
    },
    Target { name: "python", run: python::run, files: &[], texts: &["\x03code", "\x0b\0\0\0\0\0\0\0\0"] },
    Target {
        name: "queries",
        run: queries::run,
        files: &[],
        texts: &[
            "python:f ** operator:aten::* ** gpu-kernel:*gemm*",
            "!native:*@libmkl* | \"a b\"",
            "** {2,3} python:g",
        ],
    },
    Target {
        name: "stored",
        run: stored::run,
        files: &[
            (&[1], "profile/storage/tests/fixtures/format-1.2/manifest.json"),
            (&[2, 0, 90], "profile/storage/tests/fixtures/format-1.2/frames-000000.parquet"),
            (&[3, 0, 90], "profile/storage/tests/fixtures/format-1.2/nodes-000000.parquet"),
            (&[4, 0, 90], "profile/storage/tests/fixtures/format-1.2/values-000013.parquet"),
            (&[5, 0, 20], "profile/storage/tests/fixtures/format-1.2/ledger-000012.parquet"),
            (&[9, 0, 20], "profile/storage/tests/fixtures/format-1.2/activities-000010.parquet"),
        ],
        texts: &[],
    },
    Target {
        name: "symbols",
        run: symbols::run,
        files: &[(&[4], "symbolizer/tests/fixtures/xla/wrapped_add.1.o")],
        texts: &[
            "\x0055d0-55e0 r-xp 00000000 fe:00 42 /usr/lib/libx.so\n7f00-7f10 rw-p 00000000 00:00 0 [heap]\n",
            "\x01ffffffff81000000 T _stext\nffffffff81000040 t do_sys_poll\t[mod]\n",
            "\x027f0010 20 LazyCompile:~f /app/x.js:1\n7f0040 10 py::g:/app/x.py\n",
            "\x03\0\0\0\0\x30\0\0\0",
        ],
    },
    Target {
        name: "traces",
        run: traces::run,
        files: &[
            (&[], "tests/fuzz-targets/seeds/traces/exported.pftrace"),
            (&[], "tests/fuzz-targets/seeds/traces/sequences.pftrace"),
            (&[], "analysis/tests/traces/eventsync-a100.json.gz"),
            (&[], "profile/storage/tests/fixtures/nsys.sqlite"),
        ],
        texts: &[
            r#"{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1.5,"dur":2,"pid":0,"tid":7,
            "args":{"stream":7,"correlation":3}},{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":1,
            "dur":0.25,"pid":9,"tid":9,"args":{"correlation":3}}]}"#,
            concat!(
                r#"{"baseTimeNanoseconds":1000,"traceEvents":[{"ph":"X","cat":"kernel","name":"ncclAllReduce","#,
                r#""ts":3.5,"dur":2,"pid":0,"tid":7,"args":{"stream":7}}]}"#,
                "\n---\n",
                r#"{"baseTimeNanoseconds":9000000000000000000,"traceEvents":[{"ph":"X","cat":"kernel","#,
                r#""name":"ncclAllReduce","ts":9,"dur":3,"pid":0,"tid":7,"args":{"stream":7}}]}"#,
            ),
        ],
    },
    Target {
        name: "unwind_rows",
        run: unwind_rows::run,
        files: &[
            (&[], "tests/fuzz-targets/seeds/unwind_rows/program.eh_frame"),
            (&[], "tests/fuzz-targets/seeds/unwind_rows/realigned_stack.eh_frame"),
            (&[], "tests/fuzz-targets/seeds/unwind_rows/signal.eh_frame"),
            (&[], "tests/fuzz-targets/seeds/unwind_rows/table.rows"),
            (&[0], "symbolizer/tests/fixtures/xla/wrapped_add.1.o"),
        ],
        texts: &[],
    },
];

impl Target {
    /// The seed inputs.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub fn seeds(&self) -> io::Result<Vec<Vec<u8>>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let files = self.files.iter().map(|(kind, path)| Ok([*kind, &fs::read(root.join(path))?].concat()));
        let texts = self.texts.iter().map(|text| Ok(text.as_bytes().to_vec()));
        files.chain(texts).collect()
    }
}
