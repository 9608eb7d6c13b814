//! Kernels of torch.compile below the lines that requested them, with the published torch.

use crate::cli_support::recording::record_until;
use crate::frameworks::{Samples, Target, compiling, line, with_torch, with_triton};
use crate::simulated::Setting;

const PROGRAM: &str = "torch_compile.py";

#[test]
fn fused_kernels_and_compilation_are_attributed_to_program_lines() {
    let Some(mut command) = with_torch(PROGRAM) else { return };
    let folder = tempfile::tempdir().unwrap();
    command.env("TORCHINDUCTOR_CACHE_DIR", folder.path().join("cache"));

    // From its first instruction, to record its compilation.
    let began = format!("torch_compile.py:step:{}", line(PROGRAM, "call"));
    let table = compiling(&command, "199", |table| {
        let rows: Vec<&str> = table.lines().collect();
        let stages = rows.windows(2).find(|rows| rows[0].contains(&began)).map_or("", |rows| rows[1]);
        let has_stages = stages.contains("dynamo") && stages.contains("inductor");
        has_stages && table.contains("processes of cc1plus")
    });
    println!("| {}", table.lines().skip(1).take(4).map(str::trim).collect::<Vec<_>>().join("; "));

    // Again, attached while it runs cached code.
    let target = Target::start(&mut command);
    let place = format!(
        "[inductor cpp_fused_mul_sigmoid_tanh_0];torch_compile.py:forward:{};aten::mul, aten::sigmoid, aten::tanh;",
        line(PROGRAM, "gate")
    );
    // With debugging information, followed by a file.
    let all = |samples: &Samples| samples.with(&[";kernel"]);
    let (_folder, file) = record_until(&target.pid(), &["-F", "299"], |file| all(&Samples::of(file)) > 300);
    let samples = Samples::of(&file);
    let (there, all) = (samples.with(&[&place, ";kernel"]), all(&samples));
    println!("| {there} of {all} samples of the fused kernel below its line");
    assert!(there * 10 >= all * 9, "{samples}");
}

#[test]
fn triton_kernel_appears_below_its_python_function() {
    const PROGRAM: &str = "triton_kernels.py";
    let Some(mut command) = with_triton(PROGRAM).filter(|_| crate::simulated::is_built()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let _alone = crate::simulated::alone();
    let setting = Setting { libraries: "cuda13", collector: true, ..Setting::default() };
    command.envs(setting.variables(&folder.path().join("device.tsv")));
    command.env("TRITON_HOME", folder.path()).env_remove("TRITON_CACHE_DIR");
    let at = line(PROGRAM, "kernel");
    let place = format!(";[triton scale_shift];triton_kernels.py:scale_shift:{at};[gpu] scale_shift");
    let target = Target::start(&mut command);
    // Kernels are reported from the start, launches once their probes are attached.
    let share = |file: &str| {
        let times = Samples::of_metric(file, "gpu-time");
        (times.with(&[&place]), times.with(&[]))
    };
    let (_folder, file) = record_until(&target.pid(), &[], |file| {
        let (there, all) = share(file);
        there > 0 && there * 10 >= all * 8
    });
    let (there, all) = share(&file);
    println!("| {there} of {all} ns of Triton's kernel below its line");
    assert!(there > 0 && there * 10 >= all * 7);
}
