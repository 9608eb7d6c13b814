use proptest::prelude::*;

use super::*;
use crate::pipeline::encode;

fn sample_bytes(kernel: &[u64], user: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = RecordHeader { cpu: 3, sequence: 9, time_ns: 77, ..RecordHeader::default() };
    encode::sample(&mut bytes, &StackSample { header, pid: 5, ..StackSample::default() }, kernel, user);
    bytes
}

fn exec_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = RecordHeader { kind: kind::EXEC, ..RecordHeader::default() };
    encode::process_event(&mut bytes, &ProcessEvent { header, pid: 6, ..ProcessEvent::default() });
    bytes
}

fn with_u32(mut bytes: Vec<u8>, at: usize, value: u32) -> Vec<u8> {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    bytes
}

fn check(bytes: &[u8], expect: &str) {
    let got = match decode(bytes) {
        Ok(Event::Wake(wake)) => format!("wake {} since {}", wake.tid, wake.began_ns),
        Ok(Event::Sample(sample) | Event::Block(sample)) => format!(
            "sample pid {} kernel {:?} user {:?}",
            sample.fixed.pid,
            sample.kernel.iter().collect::<Vec<_>>(),
            sample.user.iter().collect::<Vec<_>>()
        ),
        Ok(Event::Fork(event)) => format!("fork {} of {}", event.pid, event.parent),
        Ok(Event::Exec(event)) => format!("exec {}", event.pid),
        Ok(Event::Map(event)) => format!("map {}", event.pid),
        Ok(Event::Exit(event)) => format!("exit {}", event.pid),
        Err(error) => error.to_string(),
    };
    assert_eq!(got, expect);
}

#[test]
fn each_kind_of_record_is_read_back_as_written() {
    check(&sample_bytes(&[], &[]), "sample pid 5 kernel [] user []");
    check(&sample_bytes(&[1, 2], &[3]), "sample pid 5 kernel [1, 2] user [3]");
    check(&exec_bytes(), "exec 6");
}

#[test]
fn damaged_records_are_refused_with_the_reason() {
    check(&[], "the record has 0 bytes of 24");
    check(&sample_bytes(&[], &[7])[..60], "the record has 60 bytes of 88");
    check(&with_u32(exec_bytes(), 4, 9), "record kind 9 is not known");
    check(&with_u32(exec_bytes(), 0, 47), "the record says 47 bytes and its parts take 48");
    // 64: kernel_words and user_words of the sample.
    check(
        &with_u32(sample_bytes(&[], &[7]), 64, 0x0005_0000),
        "the record says 88 bytes and its parts take 120",
    );
    check(&sample_bytes(&[0; 128], &[]), "the record says 1104 bytes and its parts take 1104");
}

#[test]
fn a_damaged_record_costs_only_itself_while_its_size_is_believable() {
    let batch = [exec_bytes(), with_u32(exec_bytes(), 4, 9), sample_bytes(&[], &[1])].concat();
    let kinds: Vec<_> = records(&batch).map(|slot| slot.event.is_ok()).collect();
    assert_eq!(kinds, [true, false, true]);

    let unbelievable = [exec_bytes(), with_u32(exec_bytes(), 0, 0), sample_bytes(&[], &[1])].concat();
    let kinds: Vec<_> = records(&unbelievable).map(|slot| slot.event.is_ok()).collect();
    assert_eq!(kinds, [true, false]);
}

#[test]
fn missing_numbers_are_counted_per_cpu_and_swapped_ones_are_not() {
    let mut sequences = Sequences::default();
    for (cpu, sequence) in [(0, 1), (0, 3), (0, 2), (5, 1), (5, 4), (0, 6)] {
        sequences.saw(cpu, sequence);
    }
    assert_eq!(sequences.missing(), 2 + 2);
    sequences.saw(5, u64::MAX);
    assert_eq!(sequences.missing(), 2 + 1, "a number that cannot be is only a record that was seen");
}

proptest! {
    #[test]
    fn any_bytes_are_split_without_a_panic_and_without_a_byte_left(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut end = 0;
        for slot in records(&bytes) {
            prop_assert_eq!(slot.offset, end);
            prop_assert!(slot.size > 0);
            end += slot.size;
        }
        prop_assert_eq!(end, bytes.len());
    }

    #[test]
    fn damage_to_one_byte_is_never_a_panic(
        at in 0usize..200, value: u8, kernel in prop::collection::vec(any::<u64>(), 0..4), user in prop::collection::vec(any::<u64>(), 0..8),
    ) {
        let mut batch = [sample_bytes(&kernel, &user), exec_bytes()].concat();
        let at = at % batch.len();
        batch[at] = value;
        prop_assert_eq!(records(&batch).map(|slot| slot.size).sum::<usize>(), batch.len());
    }

    #[test]
    fn what_is_encoded_is_decoded(
        kernel in prop::collection::vec(any::<u64>(), 0..127), user in prop::collection::vec(any::<u64>(), 0..300),
    ) {
        let bytes = sample_bytes(&kernel, &user);
        let Ok(Event::Sample(sample)) = decode(&bytes) else { panic!("not a sample") };
        prop_assert_eq!(sample.kernel.iter().collect::<Vec<_>>(), kernel);
        prop_assert_eq!(sample.user.iter().collect::<Vec<_>>(), user);
    }
}
