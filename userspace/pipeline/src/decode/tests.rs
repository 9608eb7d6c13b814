use deepctx_common::activity::probe;
use proptest::prelude::*;

use super::*;
use crate::encode;

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

fn call_bytes(user: &[u64], arguments: &[u64], text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let fixed = StackSample { period: 41, ..StackSample::default() };
    encode::call(&mut bytes, &fixed, &[], user, &Call { site: 2, ..Call::default() }, arguments, text);
    bytes
}

fn return_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::call_return(&mut bytes, &Return { call: 41, result: 1, ..Return::default() });
    bytes
}

fn message_bytes(what: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::message(&mut bytes, &Message { what, ..Message::default() }, payload);
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
        Ok(Event::Call(sample, call)) => format!(
            "call {} of site {} user {:?} arguments {:?} text {:?}",
            sample.fixed.period,
            call.call.site,
            sample.user.iter().collect::<Vec<_>>(),
            call.values.iter().collect::<Vec<_>>(),
            String::from_utf8_lossy(call.text)
        ),
        Ok(Event::Return(record)) => format!("call {} returned {}", record.call, record.result),
        Ok(Event::Correlation(record)) => format!("call {} is {}", record.call, record.correlation),
        Ok(Event::Message(message, bytes)) => format!("message {} {bytes:?}", message.what),
        Err(error) => error.to_string(),
    };
    assert_eq!(got, expect);
}

#[test]
fn each_kind_of_record_is_read_back_as_written() {
    check(&sample_bytes(&[], &[]), "sample pid 5 kernel [] user []");
    check(&sample_bytes(&[1, 2], &[3]), "sample pid 5 kernel [1, 2] user [3]");
    check(&exec_bytes(), "exec 6");
    check(&call_bytes(&[], &[], b""), r#"call 41 of site 2 user [] arguments [] text """#);
    check(&call_bytes(&[3], &[1, 2], b"gemm"), r#"call 41 of site 2 user [3] arguments [1, 2] text "gemm""#);
    check(&return_bytes(), "call 41 returned 1");
    check(&message_bytes(probe::NAME, b"abc"), "message 3 [97, 98, 99]");
    let mut bytes = Vec::new();
    encode::correlation(&mut bytes, &Correlation { call: 41, correlation: 7, ..Correlation::default() });
    check(&bytes, "call 41 is 7");
}

#[test]
fn calls_and_messages_with_inconsistent_sizes_are_refused() {
    let fixed = size_of::<StackSample>();
    // The count of arguments and the length of the text, as u16, 8 bytes into the call.
    check(
        &with_u32(call_bytes(&[], &[1], b""), fixed + 8, 13),
        "the record says 104 bytes and its parts take 200",
    );
    check(
        &with_u32(call_bytes(&[], &[1], b""), fixed + 8, 0x0001_0001),
        "the record says 104 bytes and its parts take 112",
    );
    let one_too_many = call_bytes(&[], &[0; ARGUMENTS_MAX + 1], b"");
    check(&one_too_many, "the record says 328 bytes and its parts take 328");
    let long = call_bytes(&[], &[], &[b'a'; TEXT_MAX + 1]);
    check(&long, "the record says 4200 bytes and its parts take 4200");
    // The call itself is cut off.
    check(&with_u32(sample_bytes(&[], &[]), 4, 8), "the record says 80 bytes and its parts take 96");
    let bytes_at = std::mem::offset_of!(Message, bytes);
    check(
        &with_u32(message_bytes(probe::NAME, b"abc"), bytes_at, 9),
        "the record says 72 bytes and its parts take 80",
    );
    check(
        &with_u32(message_bytes(probe::NAME, b""), bytes_at, u32::MAX),
        "the record says 64 bytes and its parts take 4294967295",
    );
}

#[test]
fn damaged_records_are_refused_with_the_reason() {
    check(&[], "the record has 0 bytes of 24");
    check(&sample_bytes(&[], &[7])[..60], "the record has 60 bytes of 88");
    check(&with_u32(exec_bytes(), 4, 99), "record kind 99 is not known");
    check(&with_u32(exec_bytes(), 0, 47), "the record says 47 bytes and its parts take 48");
    // 64: kernel_words and user_words of the sample.
    check(
        &with_u32(sample_bytes(&[], &[7]), 64, 0x0005_0000),
        "the record says 88 bytes and its parts take 120",
    );
    check(&sample_bytes(&[0; 128], &[]), "the record says 1104 bytes and its parts take 1104");
}

#[test]
fn damaged_record_with_a_plausible_size_costs_only_itself() {
    let batch = [exec_bytes(), with_u32(exec_bytes(), 4, 99), sample_bytes(&[], &[1])].concat();
    let kinds: Vec<_> = records(&batch).map(|slot| slot.event.is_ok()).collect();
    assert_eq!(kinds, [true, false, true]);

    let unbelievable = [exec_bytes(), with_u32(exec_bytes(), 0, 0), sample_bytes(&[], &[1])].concat();
    let kinds: Vec<_> = records(&unbelievable).map(|slot| slot.event.is_ok()).collect();
    assert_eq!(kinds, [true, false]);
}

#[test]
fn missing_sequence_numbers_are_counted_per_cpu_despite_reordering() {
    let mut sequences = Sequences::default();
    for (cpu, sequence) in [(0, 1), (0, 3), (0, 2), (5, 1), (5, 4), (0, 6)] {
        sequences.record(cpu, sequence);
    }
    assert_eq!(sequences.missing(), 2 + 2);
    sequences.record(5, u64::MAX);
    assert_eq!(sequences.missing(), 2 + 1, "a number that cannot be is only a record that was seen");
}

proptest! {
    #[test]
    fn any_bytes_split_into_records_without_panic_or_remainder(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
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
        at in 0usize..900, value: u8, kernel in prop::collection::vec(any::<u64>(), 0..4), user in prop::collection::vec(any::<u64>(), 0..8),
    ) {
        let call = call_bytes(&user, &kernel, b"name");
        let message = message_bytes(probe::ACTIVITIES, &[1; 130]);
        let mut batch = [sample_bytes(&kernel, &user), exec_bytes(), call, return_bytes(), message].concat();
        let at = at % batch.len();
        batch[at] = value;
        prop_assert_eq!(records(&batch).map(|slot| slot.size).sum::<usize>(), batch.len());
    }

    #[test]
    fn a_call_is_decoded_as_encoded(
        user in prop::collection::vec(any::<u64>(), 0..30),
        arguments in prop::collection::vec(any::<u64>(), 0..=ARGUMENTS_MAX),
        text in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = call_bytes(&user, &arguments, &text);
        let Ok(Event::Call(sample, call)) = decode(&bytes) else { panic!("not a call") };
        prop_assert_eq!(sample.user.iter().collect::<Vec<_>>(), user);
        prop_assert_eq!(call.values.iter().collect::<Vec<_>>(), arguments);
        prop_assert_eq!(call.text, text);
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
