//! Compiled code below the operators and lines from which it was compiled.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
mod frameworks;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod simulated;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use cli_support::recording::record_until;
use cli_support::{can_capture, expect_code};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use frameworks::{Samples, Target, workload};
use simulated::{Capture, Setting};

fn compile(source: &Path, to: &Path, arguments: &[&str]) {
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o"]).arg(to).arg(source).args(arguments);
    assert!(compiler.status().unwrap().success());
}

/// Code without relocations, as the function of this name.
fn work(name: &str) -> String {
    format!(
        "void {name}(volatile unsigned long *state) {{\n    \
             for (unsigned long n = 0; n < 100000; n++) *state = *state * 6364136223846793005ul + n;\n}}\n"
    )
}

/// XLA's dump of a module whose only kernel is this one.
fn module(kernel: &str) -> String {
    format!(
        "HloModule jit_step, is_scheduled=true\n\n\
         FileNames\n1 \"/srv/net.py\"\n\nFunctionNames\n1 \"step\"\n2 \"layer\"\n\n\
         FileLocations\n1 {{file_name_id=1 function_name_id=1 line=19 column=8}}\n\
         2 {{file_name_id=1 function_name_id=2 line=8 column=4}}\n\n\
         StackFrames\n1 {{file_location_id=1 parent_frame_id=1}}\n2 {{file_location_id=2 parent_frame_id=2}}\n\n\
         %fused (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n  \
         %exp.1 = f32[8]{{0}} exponential(%p), metadata={{op_name=\"jit(step)/gate/exp\" stack_frame_id=2}}\n  \
         ROOT %mul.1 = f32[8]{{0}} multiply(%p, %exp.1), metadata={{op_name=\"jit(step)/gate/mul\" stack_frame_id=2}}\n}}\n\n\
         ENTRY %main (x: f32[8]) -> f32[8] {{\n  %x = f32[8]{{0}} parameter(0), metadata={{op_name=\"x\"}}\n  \
         ROOT %{kernel} = f32[8]{{0}} fusion(%x), kind=kLoop, calls=%fused, metadata={{op_name=\"jit(step)/gate/mul\" stack_frame_id=2}}\n}}\n"
    )
}

#[test]
fn compiled_code_stands_below_the_lines_that_asked_for_it() {
    if !can_capture() {
        return;
    }
    const STEM: &str = "cb3wc4wyxywkgyi4z3cjy33xy4yxg4docatly5ghvdqw3xbolhx3";
    const WRAPPER: &str = "cjpvtolrhoov26gbkoz3kj536i7zxvd3js3x6mrucoaysmzfjsp7";
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    for sub in ["dump", "inductor/b3", "inductor/jp", "inductor/fxgraph/ab/key"] {
        std::fs::create_dir_all(at(sub)).unwrap();
    }

    // XLA: an object file in the dump, and its module.
    std::fs::write(at("fusion.c"), work("multiply_fusion")).unwrap();
    let object = at("dump/module_0001.jit_step.obj-file.multiply_fusion_kernel_module.o");
    compile(&at("fusion.c"), &object, &["-c", "-fno-pic", "-fcf-protection=none"]);
    std::fs::write(at("dump/module_0001.jit_step.cpu_after_optimizations.txt"), module("multiply_fusion"))
        .unwrap();

    // Inductor: the source of a library, its wrapper, and the graph it was generated from.
    let source = work("kernel");
    std::fs::write(at(&format!("inductor/b3/{STEM}.main.cpp")), &source).unwrap();
    std::fs::write(at("kernel.c"), &source).unwrap();
    let library = at(&format!("inductor/b3/{STEM}.main.so"));
    compile(&at("kernel.c"), &library, &["-shared", "-fPIC"]);
    let wrapper = format!(
        "# AOT ID: ['0_inference']\n\
         cpp_fused_mul_tanh_0 = async_compile.cpp_pybinding(['uint64_t*'], r'''\n{source}''')\n"
    );
    std::fs::write(at(&format!("inductor/jp/{WRAPPER}.py")), wrapper).unwrap();
    let graph = format!(
        "\u{8}cache_key\u{4}4{WRAPPER}\u{8}graph\n\
         # File: /srv/model.py:12 in forward, code: h = torch.tanh(h) * h\n\
         tanh: \"f32[8]\" = torch.ops.aten.tanh.default(x)\n\
         mul: \"f32[8]\" = torch.ops.aten.mul.Tensor(tanh, x)\n"
    );
    std::fs::write(at("inductor/fxgraph/ab/key/entry"), graph).unwrap();

    let program = at("compiled_code");
    compile(&workload("compiled_code.c"), &program, &["-ldl"]);
    let mut command = Command::new(&program);
    command.args([&object, &library]).env("XLA_FLAGS", "--xla_dump_to=dump").current_dir(folder.path());
    let target = Target::start(&mut command);
    let (_folder, file) =
        record_until(&target.pid(), &["-F", "199"], |file| Samples::of(file).with(&[]) > 500);
    let samples = Samples::of(&file);
    let share = |part: &str| samples.with(&[part]);
    let all = share("");
    let xla =
        share("[xla jit_step];net.py:step:19;net.py:layer:8;jit(step)/gate/mul [fused: exp];multiply_fusion");
    let inductor = share("[inductor cpp_fused_mul_tanh_0];model.py:forward:12;aten::mul, aten::tanh;kernel");
    assert!((xla + inductor) * 100 >= all * 90, "{samples}");
    assert!(xla * 4 > all && inductor * 4 > all, "{samples}");

    let report = expect_code(0, &["report", &file, "--all"]);
    for line in [
        "xla jit_step  multiply_fusion  /srv/net.py:8",
        "jit(step)/gate/mul [fused: exp]",
        "/srv/model.py:12",
    ] {
        assert!(report.contains(line), "{report}");
    }
}

/// Kernel counts by the frames between the launch and the kernel.
fn compiled_kernels(capture: &Capture) -> BTreeMap<String, u64> {
    let (tree, frames, strings) = (&capture.profile.tree, &capture.profile.frames, &capture.profile.strings);
    let mut counts = BTreeMap::new();
    for (node, cell) in tree.cells(Metric::Kernels) {
        let stack: Vec<Frame> = tree.stack(node).into_iter().map(|frame| frames.get(frame)).collect();
        let api = stack.iter().rposition(|frame| matches!(frame, Frame::GpuApi { .. })).unwrap();
        let labels: Vec<_> = stack[api + 1..].iter().map(|frame| frame.label(strings, true)).collect();
        *counts.entry(labels.join(" ")).or_default() += cell.sum;
    }
    counts
}

#[test]
fn compiled_device_kernels_appear_below_their_source_lines() {
    const STEPS: u64 = 20;
    const FUSED: &str = "triton_poi_fused_add_relu_0";
    for (libraries, collector) in [("cuda13", true), ("bare", false)] {
        let mut expect = BTreeMap::new();
        for (file, line) in [("net.py", 9), ("eval.py", 5)] {
            let fused = |line: u32, operators: &str| {
                format!("[inductor {FUSED}] {file}:forward:{line} {operators} [gpu] {FUSED}")
            };
            expect.insert(fused(line, "aten::add, aten::relu"), STEPS);
            expect.insert(fused(line + 2, "aten::tanh"), STEPS);
        }
        for (module, kernel, line) in [
            ("f", "loop_add_fusion", 3),
            ("f", "loop_exp_fusion_1", 4),
            ("g", "loop_add_fusion", 7),
            ("g", "input_reduce_fusion", 8),
        ] {
            let operator = kernel.replace("_1", ".1");
            let text =
                format!("[xla jit_{module}] jitted.py:[line]:{line} jit({module})/{operator} [gpu] {kernel}");
            expect.insert(text, STEPS);
        }
        expect.insert("[triton scale_shift] scale.py:scale_shift:8 [gpu] scale_shift".to_owned(), STEPS);
        let setting = Setting { libraries, collector, ..Setting::default() };
        let folder = tempfile::tempdir().unwrap();
        let (path, steps) = (folder.path().display().to_string(), STEPS.to_string());
        let words = [&path, "--steps", &steps, "--attended"];
        let program = simulated::python("gpu_compiled.py");
        // It runs until all checks are done: files are found through its process.
        let all: u64 = expect.values().sum();
        let seen = |capture: &Capture| compiled_kernels(capture).values().sum::<u64>() >= all;
        let Some(capture) = simulated::record_until(setting, &program, &words, seen) else { return };
        assert_eq!(compiled_kernels(&capture), expect, "{libraries}");
        capture.adds_up();
        if collector {
            let time: u64 =
                capture.account.iter().filter(|line| line.what == "kernel").map(|l| l.end - l.start).sum();
            assert_eq!(capture.total(Metric::GpuTime), time);
        }
    }
}
