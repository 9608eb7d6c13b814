//! Messages of a collector, and records of another tool's collection.

use deepctx_capture::config::SamplingPeriod;
use deepctx_common::Plain as _;
use deepctx_common::activity::{Activity, probe};
use deepctx_common::call::call_flag;
use deepctx_common::samples::part;

use crate::scene::Scene;
use crate::support::can_capture;

#[test]
fn a_collector_is_heard_while_someone_listens() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&["open DRIVER", "collector COLLECTOR", "records CUPTI 1"], |_| {});
    scene.until(|reported| reported.probes.collectors == 1 && reported.probes.files == 3);
    assert_eq!(scene.tell("listeners"), 7, "one for each message");
    assert_eq!(scene.tell("samplers"), 0, "nobody asked for samples");
    scene.tell("say");
    scene.until(|reported| reported.said.len() >= 5 && reported.correlations.len() >= 2);
    // A collector itself reports the records it reads.
    scene.tell("records CUPTI 20");
    scene.end();
    assert_eq!(scene.reported.said.len(), 5);
    assert_eq!(scene.tell("listeners"), 0, "nobody listens any more");

    let reported = &scene.reported;
    let launch = reported.of("cuLaunchKernel")[0];
    let ids: Vec<_> = reported.correlations.iter().map(|c| (c.call, c.correlation, c.api)).collect();
    assert_eq!(ids, [(launch.sample.fixed.period, 4711, 3 << 16 | 307), (0, 4712, 3 << 16 | 307)]);
    assert_eq!(launch.call.flags & call_flag::STACK_LIMITED, 0);

    let one = |what| reported.said.iter().find(|(said, _)| said.what == what).unwrap();
    let (said, bytes) = one(probe::ACTIVITIES);
    assert_eq!((said.flags, said.values[1], bytes.len()), (0, 3, 3 * size_of::<Activity>()));
    let words: Vec<u64> = bytes.chunks(8).map(|word| u64::read_from(word).unwrap()).collect();
    assert_eq!(words, (0..3 * 14).collect::<Vec<u64>>());
    let (said, bytes) = one(probe::NAME);
    assert_eq!((said.values[0], &bytes[..]), (42, &b"kernel_of_mine"[..]));
    assert_eq!(&one(probe::DEVICE).1[..], b"a_device");
    assert_eq!(one(probe::CLOCK).0.values, [1000, 2000, 3000]);
    assert_eq!(one(probe::STATE).0.values, [1, 120_000, 0]);
}

#[test]
fn requesting_pc_samples_delivers_them_and_sets_their_own_counter() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&["open DRIVER", "collector COLLECTOR"], |options| {
        options.pc_sampling = Some(SamplingPeriod::Auto);
    });
    scene.until(|reported| reported.probes.collectors == 1 && reported.probes.files == 2);
    assert_eq!((scene.tell("listeners"), scene.tell("samplers")), (7, 1));
    scene.tell("say");
    scene.until(|reported| reported.said.len() >= 6);
    scene.end();
    assert_eq!((scene.tell("listeners"), scene.tell("samplers")), (0, 0));
    let (said, bytes) = scene.reported.said.iter().find(|(said, _)| said.what == probe::SAMPLES).unwrap();
    assert_eq!((said.flags, said.values[0]), (0, u64::from(part::REASON) << 32 | 7));
    assert_eq!(&bytes[..], b"a_reason");
}

#[test]
fn activity_records_of_another_tool_are_read_on_delivery() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&["records CUPTI 1"], |_| {});
    scene.until(|reported| reported.probes.files == 1);
    scene.tell("records CUPTI 20");
    scene.until(|reported| reported.said.len() >= 20);
    let reported = scene.end();
    assert_eq!(reported.said.len(), 20);
    for (i, (said, bytes)) in reported.said.iter().enumerate() {
        assert_eq!((said.what, said.flags), (probe::BORROWED, 0));
        let (record, name) = bytes.split_at(said.values[0] as usize);
        assert_eq!(u32::read_from(&record[92..]), Some(100 + i as u32));
        assert_eq!(name, b"borrowed_kernel");
    }
}
