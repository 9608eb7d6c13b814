//! Tests with one program in both forms as XLA wrote them, and with corrupt input.

use proptest::prelude::*;

use super::*;

/// A training step of a network of two layers, as jaxlib 0.10.2 dumped it after optimization.
const TEXT: &str = include_str!("../../../tests/fixtures/xla/train_step.cpu_after_optimizations.txt");
/// The entry of JAX's compilation cache for the same module, unpacked.
const ENTRY: &[u8] = include_bytes!("../../../tests/fixtures/xla/train_step.executable");

fn both() -> [Hlo; 2] {
    let mut found = find_modules(ENTRY);
    assert_eq!(found.len(), 1);
    [parse_text(TEXT).unwrap(), found.remove(0)]
}

/// Each instruction has its own kernel.
fn every(_: &str) -> bool {
    true
}

/// Checks the operator of a kernel, its lines, and the other operators of the kernel.
#[track_caller]
fn check(kernel: &str, name: &str, lines: &[(&str, u32)], rest: &[&str]) {
    for hlo in both() {
        let kernel = hlo.kernel(kernel, &every).unwrap();
        let (first, others) = kernel.ops.split_first().unwrap();
        let stack: Vec<_> = first.stack.iter().map(|line| (&*line.function, line.line)).collect();
        let others: Vec<_> = others.iter().map(|op| &*op.name).collect();
        assert_eq!(
            (&*kernel.unit, &*first.name, &stack[..], &others[..]),
            ("jit_train_step", name, lines, rest)
        );
    }
}

const LOOP: [(&str, u32); 3] = [("<module>", 27), ("train_step", 19), ("loss", 13)];

#[test]
fn a_kernel_has_operators_and_lines_in_both_forms() {
    let gate = [&LOOP[..2], &[("loss", 13), ("layer", 8)]].concat();
    check("wrapped_tanh", "jit(train_step)/jvp(gate)/tanh", &gate, &[]);
    check(
        "multiply_subtract_fusion.1",
        "jit(train_step)/sub",
        &[("<module>", 27), ("train_step", 20), ("train_step.<locals>.<lambda>", 20)],
        &["jit(train_step)/mul"],
    );
    // A computation applied by one instruction has the origin of that instruction.
    check(
        "region_0.1",
        "jit(train_step)/jvp(jit(sort))/sort",
        &[("<module>", 27), ("train_step", 19), ("loss", 14)],
        &[],
    );
}

#[test]
fn merged_operators_have_no_line() {
    for hlo in both() {
        let kernel = hlo.kernel("bitcast_copy_fusion", &every).unwrap();
        let merged: Vec<_> = kernel.ops.iter().take(2).map(|op| (&*op.name, op.stack.len())).collect();
        let names =
            ["jit(train_step)/transpose(jvp())/mul", "jit(train_step)/transpose(jvp())/broadcast_in_dim"];
        assert_eq!(merged, names.map(|name| (name, 0)));
    }
}

#[test]
fn both_forms_agree_on_every_kernel() {
    let [text, binary] = both();
    let mut compared = 0;
    for instruction in &text.instructions {
        assert_eq!(
            text.kernel(&instruction.name, &every),
            binary.kernel(&instruction.name, &every),
            "{}",
            instruction.name
        );
        compared += 1;
    }
    assert!(compared > 100);
}

#[test]
fn a_name_that_is_no_kernel_has_no_origin() {
    for hlo in both() {
        assert_eq!(hlo.kernel("loop_fusion.77", &every), None);
        // Nothing calls it.
        assert_eq!(hlo.kernel("main.5", &every), None);
    }
}

#[test]
fn a_kernel_may_be_shared_by_instructions_without_one() {
    // The second layer's line is another one here.
    let text = TEXT.replace(
        "%add_divide_fusion = f32[512,1024]{1,0} fusion(%ynn_fusion.4), kind=kLoop, calls=%fused_computation.15, metadata={op_name=\"jit(train_step)/jvp(gate)/div\" stack_frame_id=11}",
        "%add_divide_fusion = f32[512,1024]{1,0} fusion(%ynn_fusion.4), kind=kLoop, calls=%fused_computation.15, metadata={op_name=\"jit(train_step)/jvp(gate)/div\" stack_frame_id=7}",
    );
    assert_ne!(text, TEXT);
    let hlo = parse_text(&text).unwrap();
    let only = |name: &str| name == "add_divide_fusion.1";
    let others =
        |is_kernel: &dyn Fn(&str) -> bool| hlo.kernel("add_divide_fusion.1", is_kernel).unwrap().others;
    assert_eq!((others(&only).len(), others(&every).len()), (1, 0));
    // In the unmodified program both have the same line.
    assert!(parse_text(TEXT).unwrap().kernel("add_divide_fusion.1", &only).unwrap().others.is_empty());
}

#[test]
fn older_modules_have_the_line_beside_the_operator() {
    let text = "HloModule jit_f, entry_computation_layout={()->f32[]}\n\n\
        fused_computation {\n  \
          p = f32[] parameter(0)\n  \
          ROOT m.1 = f32[] multiply(p, p), metadata={op_name=\"jit(f)/mul \\\"x\\\"\" source_file=\"/srv/a b.py\" source_line=7}\n\
        }\n\n\
        ENTRY main.3 {\n  \
          a = f32[] parameter(0), metadata={op_name=\"a\"}\n  \
          ROOT loop_multiply_fusion = f32[] fusion(a), kind=kLoop, calls=fused_computation, metadata={op_type=\"mul\" op_name=\"jit(f)/mul \\\"x\\\"\" source_file=\"/srv/a b.py\" source_line=7}\n\
        }\n";
    let kernel = parse_text(text).unwrap().kernel("loop_multiply_fusion", &every).unwrap();
    let [op] = &kernel.ops[..] else { panic!("{kernel:?}") };
    let line = SourceLine { file: "/srv/a b.py".into(), function: "".into(), line: 7 };
    assert_eq!((&*op.name, &op.stack[..]), ("jit(f)/mul \"x\"", &[line][..]));
}

#[test]
fn names_of_gpu_kernels_match_instructions() {
    assert!(is_same_name("loop_add_fusion.3", "loop_add_fusion_3"));
    assert!(is_same_name("input-reduce", "input_reduce"));
    assert!(!is_same_name("loop_add_fusion_3", "loop_add_fusion.3"));
    assert!(!is_same_name("loop_add_fusion.3", "loop_add_fusion_31"));
}

#[test]
fn cyclic_stacks_are_bounded() {
    let text =
        TEXT.replace("2 {file_location_id=2 parent_frame_id=2}", "2 {file_location_id=2 parent_frame_id=4}");
    let kernel = parse_text(&text).unwrap().kernel("wrapped_tanh", &every).unwrap();
    assert!(kernel.ops[0].stack.len() <= STACK_MAX);
}

#[test]
fn object_files_of_an_executable_are_found() {
    let objects = objects(ENTRY);
    let names: Vec<_> =
        objects.iter().flat_map(|object| crate::jit::functions(object)).map(|f| f.name).collect();
    assert!(names.iter().any(|name| name == "wrapped_tanh") && names.iter().any(|name| name == "region_0.1"));
    assert_eq!(objects.len(), names.len());
}

#[test]
fn a_file_of_module_starts_takes_bounded_time() {
    let one = b"\xff\xff\x7f\x0a\x01x\x12\x01y";
    let bytes: Vec<u8> = one.iter().copied().cycle().take(1 << 20).collect();
    assert!(find_modules(&bytes).is_empty());
}

proptest! {
    #[test]
    fn corrupt_files_are_handled(at in 0..60_000_usize, with in prop::collection::vec(any::<u8>(), 1..40)) {
        let mut entry = ENTRY.to_vec();
        let at = at.min(entry.len() - with.len());
        entry[at..at + with.len()].copy_from_slice(&with);
        for hlo in find_modules(&entry) {
            let _ = hlo.kernel("wrapped_tanh", &every);
        }
        let mut text = TEXT.as_bytes().to_vec();
        let at = at.min(text.len() - with.len());
        text[at..at + with.len()].copy_from_slice(&with);
        if let Some(hlo) = parse_text(&String::from_utf8_lossy(&text)) {
            let _ = hlo.kernel("wrapped_tanh", &every);
        }
    }
}
