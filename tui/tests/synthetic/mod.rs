//! A training run that never was: snapshots of a synthetic tree that grows with each turn.
//!
//! Owns: the tree that the example shows and the tests draw. Because: a picture in a test should look like what people
//! see. Does not: use randomness or a clock.

use deepctx_profile::snapshot::{FlameNode, FlameTree, FrameKind, Header, LossRow, Snapshot, TableRow, Unit};
use deepctx_profile::view::Selection;

/// Paths with the weight at their end; the letter before each frame is its kind.
const PATHS: &[(&str, u64)] = &[
    (
        "#python-4711;~MainThread;N_start;NPy_RunMain;Ptrain.py:<module>;Ptrain.py:main;Ptrain.py:epoch;Ptrain.py:step;Omm::forward;Nat::native::addmm;Nmkl_blas_avx512_sgemm_kernel",
        410,
    ),
    (
        "#python-4711;~MainThread;N_start;NPy_RunMain;Ptrain.py:<module>;Ptrain.py:main;Ptrain.py:epoch;Ptrain.py:step;Omm::forward;Nat::native::addmm;Nmkl_blas_avx512_sgemm_pack",
        61,
    ),
    (
        "#python-4711;~MainThread;N_start;NPy_RunMain;Ptrain.py:<module>;Ptrain.py:main;Ptrain.py:epoch;Ptrain.py:step;Pautograd.py:backward;Ntorch::autograd::Engine::execute(torch::autograd::Edge const&, std::vector<at::Tensor>&)",
        120,
    ),
    (
        "#python-4711;~MainThread;N_start;NPy_RunMain;Ptrain.py:<module>;Ptrain.py:main;Ptrain.py:epoch;Ptrain.py:step;AcuLaunchKernel;Gvoid cutlass::Kernel<cutlass_80_simt_sgemm_128x64>",
        75,
    ),
    (
        "#python-4711;~MainThread;N_start;NPy_RunMain;Ptrain.py:<module>;Ptrain.py:main;Ptrain.py:epoch;Pdata.py:load;Nread;Kentry_SYSCALL_64;Kksys_read;Kvfs_read;Kext4_file_read_iter",
        90,
    ),
    (
        "#python-4711;~MainThread;N_start;NPy_RunMain;Ptrain.py:<module>;Ptrain.py:main;Ptrain.py:epoch;Pdata.py:load;Pdata.py:数据预处理",
        42,
    ),
    (
        "#python-4711;~MainThread;N_start;NPy_RunMain;Ptrain.py:<module>;Ptrain.py:main;Ptrain.py:epoch;Pdata.py:load;?[unknown: no unwind row]",
        18,
    ),
    (
        "#python-4711;~MainThread;N_start;NPy_RunMain;Pimportlib:_find_and_load;Pimportlib:_find_and_load;Pimportlib:_find_and_load;Nmarshal_loads",
        9,
    ),
    (
        "#python-4711;~pt_autograd_0;Nclone3;Nstart_thread;Ntorch::autograd::Engine::thread_main;Nat::native::sum_kernel",
        150,
    ),
    ("#python-4711;~pt_data_pin;Nclone3;Nstart_thread;Npthread_cond_wait;Kentry_SYSCALL_64;Kdo_futex", 25),
];

fn kind(letter: char) -> FrameKind {
    match letter {
        '#' => FrameKind::Process,
        '~' => FrameKind::Thread,
        'P' => FrameKind::Python,
        'O' => FrameKind::Operator,
        'K' => FrameKind::Kernel,
        'A' => FrameKind::GpuApi,
        'G' => FrameKind::GpuKernel,
        '?' => FrameKind::Unresolved,
        _ => FrameKind::Native,
    }
}

/// The profile after some turns of a quarter of a second.
pub(crate) fn snapshot(turn: u64, request: &Selection) -> Snapshot {
    let mut tree = FlameTree { nodes: vec![FlameNode { label: "all".to_owned(), ..FlameNode::default() }] };
    let mut table: Vec<TableRow> = Vec::new();
    for (index, (path, weight)) in (0u64..).zip(PATHS) {
        let value = weight * 20_000 * turn * (10 + (turn + index * 7) % 5);
        let frames: Vec<&str> = path.split(';').collect();
        add(&mut tree, &frames, value);
        add_rows(&mut table, &frames, value);
    }
    // Many small functions, as a real profile has.
    for index in 0..40 {
        let frames = ["#python-4711", "~MainThread", "N_start", "NPy_RunMain", &format!("Nsmall_{index:02}")];
        add(&mut tree, &frames, turn * 9_000);
        add_rows(&mut table, &frames, turn * 9_000);
    }
    table.sort_by_key(|row| std::cmp::Reverse(row.exclusive));
    let lost = turn.saturating_sub(40);
    let loss = |stage: &str, reason: &str, sentence: &str, count, lost| LossRow {
        stage: stage.to_owned(),
        reason: reason.to_owned(),
        sentence: sentence.to_owned(),
        count,
        lost,
    };
    let mut losses = vec![
        loss("kernel", "ring-full", "the ring was full: the reader did not keep up", lost, true),
        loss("resolve", "no-unwind-row", "no unwind row covers this address", turn * 3, false),
    ];
    losses.retain(|row| row.count > 0);
    let header = Header {
        target: "python train.py --epochs 3 (pid 4711)".to_owned(),
        elapsed_ns: turn * 250_000_000,
        frequency_hz: 99,
        samples: turn * 99,
        samples_per_second: 396.2,
        lost,
        complete_share: Some(0.9993),
        own_cpu_share: 0.0082,
        own_memory_bytes: 43 << 20,
        metric: "cpu-time",
        unit: Unit::Nanoseconds,
        notice: (turn % 20 < 8).then(|| format!("symbolizing libtorch_cpu.so … ({})", request.view.name())),
    };
    Snapshot { header, flame: tree, table, losses }
}

fn add(tree: &mut FlameTree, frames: &[&str], value: u64) {
    let mut at = 0u32;
    tree.nodes[0].inclusive += value;
    for frame in frames {
        let label = &frame[1..];
        let children = tree.nodes[at as usize].children.clone();
        let place = children.binary_search_by(|&child| tree.nodes[child as usize].label.as_str().cmp(label));
        let next = match place {
            Ok(found) => children[found],
            Err(place) => {
                let new = tree.nodes.len() as u32;
                tree.nodes.push(FlameNode {
                    label: label.to_owned(),
                    kind: kind(frame.chars().next().unwrap_or('N')),
                    detail: label.split_once(':').map_or("libtorch_cpu.so", |(file, _)| file).to_owned(),
                    parent: at,
                    ..FlameNode::default()
                });
                tree.nodes[at as usize].children.insert(place, new);
                new
            }
        };
        tree.nodes[next as usize].inclusive += value;
        at = next;
    }
    tree.nodes[at as usize].exclusive += value;
}

fn add_rows(table: &mut Vec<TableRow>, frames: &[&str], value: u64) {
    for (index, frame) in frames.iter().enumerate() {
        let label = &frame[1..];
        if frames[..index].iter().any(|above| &above[1..] == label) {
            continue;
        }
        let at = table.iter().position(|row| row.label == label).unwrap_or_else(|| {
            let detail = label.split_once(':').map_or("libtorch_cpu.so", |(file, _)| file).to_owned();
            table.push(TableRow {
                label: label.to_owned(),
                kind: kind(frame.chars().next().unwrap_or('N')),
                detail,
                ..TableRow::default()
            });
            table.len() - 1
        });
        table[at].inclusive += value;
        if frames.last().is_some_and(|leaf| &leaf[1..] == label) {
            table[at].exclusive += value;
        }
    }
}
