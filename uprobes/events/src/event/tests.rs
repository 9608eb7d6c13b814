use super::*;

/// Every number and name as first stored in captures; of the fills, only those of whole elements.
const STORED: &[(u16, &str)] = &[
    (0x0100, "launch"),
    (0x0101, "launch-ex"),
    (0x0102, "launch-cooperative"),
    (0x0103, "launch-multi-device"),
    (0x0104, "launch-legacy"),
    (0x0105, "launch-function"),
    (0x0106, "launch-global"),
    (0x0200, "host-function"),
    (0x0300, "graph-launch"),
    (0x0301, "graph-upload"),
    (0x0302, "capture-begin"),
    (0x0303, "capture-end"),
    (0x0304, "graph-instantiate"),
    (0x0305, "graph-update"),
    (0x0306, "graph-release"),
    (0x0307, "graph-node"),
    (0x0308, "graph-clone"),
    (0x0309, "graph-node-without-work"),
    (0x030a, "graph-add-dependencies"),
    (0x030b, "graph-remove-dependencies"),
    (0x0400, "copy by-pointers async"),
    (0x0401, "copy by-kind async"),
    (0x0402, "copy by-parameters async"),
    (0x0403, "copy batch async"),
    (0x0404, "copy host-to-device async"),
    (0x0405, "copy device-to-host async"),
    (0x0406, "copy device-to-device async"),
    (0x0407, "copy peer async"),
    (0x0408, "copy host-to-array async"),
    (0x0409, "copy array-to-host async"),
    (0x040a, "copy device-to-array async"),
    (0x040b, "copy array-to-device async"),
    (0x040c, "copy array-to-array async"),
    (0x0480, "copy by-pointers blocking"),
    (0x0481, "copy by-kind blocking"),
    (0x0482, "copy by-parameters blocking"),
    (0x0483, "copy batch blocking"),
    (0x0484, "copy host-to-device blocking"),
    (0x0485, "copy device-to-host blocking"),
    (0x0486, "copy device-to-device blocking"),
    (0x0487, "copy peer blocking"),
    (0x0488, "copy host-to-array blocking"),
    (0x0489, "copy array-to-host blocking"),
    (0x048a, "copy device-to-array blocking"),
    (0x048b, "copy array-to-device blocking"),
    (0x048c, "copy array-to-array blocking"),
    (0x0500, "prefetch"),
    (0x0601, "fill 1 async"),
    (0x0602, "fill 2 async"),
    (0x0604, "fill 4 async"),
    (0x0681, "fill 1 blocking"),
    (0x0682, "fill 2 blocking"),
    (0x0684, "fill 4 blocking"),
    (0x0700, "alloc device"),
    (0x0701, "alloc async"),
    (0x0702, "alloc managed"),
    (0x0703, "alloc host"),
    (0x0704, "alloc registered"),
    (0x0705, "alloc reserved"),
    (0x0706, "alloc physical"),
    (0x0707, "alloc mapped"),
    (0x0800, "free device"),
    (0x0801, "free async"),
    (0x0802, "free managed"),
    (0x0803, "free host"),
    (0x0804, "free registered"),
    (0x0805, "free reserved"),
    (0x0806, "free physical"),
    (0x0807, "free mapped"),
    (0x0900, "sync stream"),
    (0x0901, "sync event"),
    (0x0902, "sync context"),
    (0x0903, "sync device"),
    (0x0a00, "event-record"),
    (0x0a01, "stream-wait"),
    (0x0a02, "stream-create"),
    (0x0a03, "stream-destroy"),
    (0x0a04, "stream-value"),
    (0x0b00, "module-load"),
    (0x0b01, "module-unload"),
    (0x0b02, "function-by-name"),
    (0x0b03, "function-of-kernel"),
    (0x0b04, "module-of-library"),
    (0x0b05, "function-list"),
    (0x0b06, "proc-address"),
    (0x0b07, "fat-binary"),
    (0x0b08, "fat-binary-unload"),
    (0x0b09, "function-stub"),
    (0x0b0a, "kernel-of-stub"),
    (0x0b0b, "function-of-stub"),
    (0x0c00, "context-create"),
    (0x0c01, "context-current"),
    (0x0c02, "context-destroy"),
    (0x0c03, "device-current"),
    (0x0d00, "collective all-reduce"),
    (0x0d01, "collective broadcast"),
    (0x0d02, "collective reduce"),
    (0x0d03, "collective all-gather"),
    (0x0d04, "collective reduce-scatter"),
    (0x0d05, "collective all-to-all"),
    (0x0d06, "collective gather"),
    (0x0d07, "collective scatter"),
    (0x0d08, "collective send"),
    (0x0d09, "collective receive"),
    (0x0d0a, "collective put-signal"),
    (0x0d0b, "collective signal"),
    (0x0d0c, "collective wait-signal"),
    (0x0e00, "group-begin"),
    (0x0e01, "group-end"),
    (0x0e02, "communicator-create"),
    (0x0e03, "communicator-destroy"),
    (0x0f00, "activity-client"),
    (0x0f01, "activity-client-gone"),
    (0x0f02, "activity-callbacks"),
    (0x0f03, "activity-kind-on"),
    (0x0f04, "activity-kind-off"),
    (0x0f05, "activity-flush"),
    (0x0f06, "activity-record"),
    (0x1000, "step-created"),
    (0x1001, "step-begins"),
    (0x1002, "backward-begins"),
    (0x1100, "range-named"),
    (0x1101, "range-begins"),
    (0x1102, "range-ends"),
    (0x1103, "range-pushed"),
    (0x1104, "range-popped"),
    (0x1105, "profiler-start"),
    (0x1106, "profiler-stop"),
    (0x1107, "step-marked"),
    (0x1200, "tensor-alloc"),
    (0x1201, "tensor-free"),
    (0x1202, "tensor-report"),
    (0x1203, "tensor-request"),
    (0x1300, "operator-begins"),
    (0x1301, "operator-named"),
    (0x1302, "operator-tensors"),
    (0x1400, "team-begins"),
    (0x1500, "thunk-begins"),
    (0xff00, "user"),
];

#[test]
fn every_number_keeps_its_event() {
    for (number, words) in STORED {
        let event = Event::from_number(*number).unwrap();
        assert_eq!((event.number(), event.to_string().as_str()), (*number, *words));
    }
}

#[test]
fn numbers_without_an_event_are_refused() {
    let is_fill = |number: u16| number >> 8 == FILL;
    for number in 0..=u16::MAX {
        let known = STORED.iter().any(|(stored, _)| *stored == number) || is_fill(number);
        let event = Event::from_number(number);
        assert_eq!(event.is_some(), known, "{number:#06x}");
        assert!(event.is_none_or(|event| event.number() == number), "{number:#06x}");
    }
}

#[test]
fn events_map_to_the_numbers_that_captures_carry() {
    let copy = |direction, timing| Event::Gpu(GpuCall::Transfer(TransferCall::Copy(direction, timing)));
    let fill = |bytes, timing| Event::Gpu(GpuCall::Transfer(TransferCall::Fill(bytes, timing)));
    for (event, number) in [
        (Event::Gpu(GpuCall::Launch(LaunchCall::Kernel)), 0x0100),
        (copy(Direction::HostToDevice, Timing::Async), 0x0404),
        (copy(Direction::ArrayToArray, Timing::Blocking), 0x048c),
        (fill(4, Timing::Blocking), 0x0684),
        (Event::Gpu(GpuCall::Memory(MemoryCall::Free(MemoryKind::Mapped))), 0x0807),
        (Event::Gpu(GpuCall::Sync(SyncScope::Device)), 0x0903),
        (Event::Cupti(CuptiEvent::Record), 0x0f06),
        (Event::Autograd(AutogradEvent::NodeBegins), 0x1001),
        (Event::Range(RangeEvent::TrainingStep), 0x1107),
        (Event::Tensor(TensorEvent::Request), 0x1203),
        (Event::Operator(OperatorEvent::Tensors), 0x1302),
        (Event::OpenMp(OpenMpEvent::ParallelBegins), 0x1400),
        (Event::Xla(XlaEvent::ThunkBegins), 0x1500),
        (Event::User, 0xff00),
    ] {
        assert_eq!((event.number(), Event::from_number(number)), (number, Some(event)));
    }
}

#[test]
fn retired_numbers_are_not_reused() {
    assert_eq!(Event::from_number(0x1108), None);
}
