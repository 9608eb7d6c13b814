//! Why rules are not checked: input missing from the profile.
//!
//! Owns: the reasons of [`super::Outcome::NotChecked`]. Because: rules that miss the same input report the same key,
//! and the `record` option that provides it is named once. Does not: decide; the rules do.

use deepctx_common::reasons;

reasons! {
    class Gap, page "findings.md";
    pub(super) const NO_HOST_TIME = "no-host-time", "the profile has no time of the program's threads",
        helps "a program that runs meanwhile, or a longer --duration";
    pub(super) const NO_DEVICE_TIME = "no-device-time",
        "the profile has no measured time of kernels", helps "--gpu-activity";
    pub(super) const NO_COPY_TIME = "no-copy-time",
        "the profile has no measured time of copies", helps "--gpu-activity";
    pub(super) const UNKNOWN_HOST_MEMORY = "unknown-host-memory",
        "whether copies used pinned memory is not known: it may have been allocated before the capture",
        helps "a command that it starts";
    pub(super) const NO_OFF_CPU_TIME = "no-off-cpu-time", "time off the CPU was not recorded", helps "--off-cpu";
    pub(super) const NO_LOADER_WAITS = "no-loader-waits",
        "waits for batches are time off the CPU, which was not recorded", helps "--off-cpu";
    pub(super) const NO_VALUES = "no-values", "the profile has no values of the metric";
    pub(super) const TOO_FEW_SAMPLES = "too-few-samples",
        "too few samples were taken", helps "--duration, or a higher --freq";
    pub(super) const TOO_FEW_WARP_SAMPLES = "too-few-warp-samples",
        "there are too few samples of warps", helps "--pc-sampling";
    pub(super) const TOO_FEW_STEPS = "too-few-steps", "there are too few steps", helps "a longer --duration";
    pub(super) const TOO_SHORT_FOR_TREND = "too-short-for-trend",
        "the capture is too short for a trend", helps "a longer --duration";
    pub(super) const TOO_FEW_GPU_READINGS = "too-few-gpu-readings",
        "the capture is too short, or readings of GPUs are missing",
        helps "a longer --duration, and --system-metrics 500ms";
    pub(super) const NO_TENSOR_MEMORY = "no-tensor-memory",
        "the memory of tensors was not recorded", helps "--probe memory";
    pub(super) const NO_PRODUCT_TENSORS = "no-product-tensors",
        "the tensors of products were not recorded", helps "--shapes aten::mm,aten::addmm,aten::bmm";
    pub(super) const NO_KERNEL_LAUNCHES = "no-kernel-launches",
        "the profile has no launches of kernels", helps "a program that launches kernels, without --no-gpu";
    pub(super) const NO_DEVICE_CALLS = "no-device-calls",
        "no call of a device's library was seen", helps "a program that uses a device, without --no-gpu";
    pub(super) const NO_OPERATOR_CALLS = "no-operator-calls",
        "calls of operators were not counted", helps "--probe operators,ranges";
    pub(super) const NO_STEP_COUNT = "no-step-count",
        "the number of steps is not known", helps "--probe operators,ranges";
    pub(super) const NO_STEPS = "no-steps", "the steps of training are not known", helps "--probe ranges";
    pub(super) const NO_RANK_STEPS = "no-rank-steps", "the traces of ranks have no steps", helps "--probe ranges";
    pub(super) const NO_COMMON_STEPS = "no-common-steps", "ranks have no training step in common";
    pub(super) const NO_RANKS = "no-ranks", "the profile has no single events of several ranks", helps "--trace";
    pub(super) const NO_COMMON_COLLECTIVE = "no-common-collective", "ranks have no collective in common";
    pub(super) const CLOCKS_DISAGREE = "clocks-disagree",
        "the clocks of ranks cannot be aligned closely enough to tell who waits for whom";
    pub(super) const NO_BACKWARD_OPERATORS = "no-backward-operators",
        "the backward pass does not stand below its operators", helps "--probe backward";
    pub(super) const NO_LOADER_THREAD = "no-loader-thread",
        "no thread was seen in a data loader", helps "--context python,native";
    pub(super) const NO_SYSTEM_METRICS = "no-system-metrics",
        "what the machine did is not in the profile", helps "--system-metrics 500ms";
    pub(super) const NO_GPU_READINGS = "no-gpu-readings",
        "what the GPUs of the machine did is not in the profile, which takes NVIDIA's driver",
        helps "--system-metrics 500ms, without --no-gpu";
    pub(super) const NO_GPU_MEMORY = "no-gpu-memory", "a GPU does not say how much of its memory is taken";
    pub(super) const NO_LINK_SPEED = "no-link-speed",
        "no network interface says how fast its link is; those of virtual machines seldom do",
        helps "--system-metrics 500ms, on a machine whose interfaces do";
    pub(super) const CPU_LIMIT_REACHED = "cpu-limit-reached",
        "tasks that a CPU limit stopped count as waiting, and a limit stopped some again and again";
    pub(super) const INTERPRETER_STRIPPED = "interpreter-stripped",
        "the Python interpreter has no symbols: its waits for its lock, if there are any, look like its other waits",
        helps "--debuginfod, or an interpreter with symbols";
    pub(super) const ACTIVITIES_INCOMPLETE = "activities-incomplete",
        "not every activity of the devices was kept", helps "a shorter --duration";
    pub(super) const NO_CAPTURE_LENGTH = "no-capture-length", "the length of the capture is not known";
    pub(super) const WORK_AT_END = "work-at-end",
        "devices got their first work as the capture ended", helps "a longer --duration";
    pub(super) const NO_RECORD_COUNTS = "no-record-counts", "no records were counted: another tool made this profile";
    pub(super) const BAD_QUERY = "bad-query", "its query is bad";
}
