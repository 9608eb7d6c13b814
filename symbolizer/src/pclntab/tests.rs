//! Tables written out in each layout, and damaged.

use super::*;

const TEXT: u64 = 0x40_1000;

/// A function to write: entry, name, and pairs of a depth and the bytes over which it holds.
pub(crate) type FunctionSpec<'a> = (u64, &'a str, &'a [(i64, u32)]);

/// A table in the form of Go 1.16, 1.18 or 1.20.
pub(crate) fn table(magic: u32, text: u64, functions: &[FunctionSpec<'_>]) -> Vec<u8> {
    let absolute = magic == 0xffff_fffa;
    let width = if absolute { 8 } else { 4 };
    let word = |value: u64| value.to_le_bytes()[..width].to_vec();
    let (mut names, mut deltas, mut records) = (vec![0], vec![0], Vec::new());
    let mut entries = Vec::new();
    let records_at = (2 * functions.len() + 1) * width;
    let base = if absolute { text } else { 0 };
    for (entry, name, depths) in functions {
        entries.extend(word(base + entry));
        entries.extend(word((records_at + records.len()) as u64));
        records.extend(word(base + entry));
        for field in [names.len() as u32, 0, 0, deltas.len() as u32] {
            records.extend(field.to_le_bytes());
        }
        names.extend(name.as_bytes());
        names.push(0);
        let mut before = -1;
        for (depth, bytes) in *depths {
            let delta = depth - before;
            before = *depth;
            varint_into(&mut deltas, ((delta << 1) ^ (delta >> 63)) as u32);
            varint_into(&mut deltas, *bytes);
        }
        deltas.push(0);
    }
    entries.extend(word(base + 0x1000));
    let words = if absolute { 7 } else { 8 };
    let names_at = 8 + 8 * words as u64;
    let deltas_at = names_at + names.len() as u64;
    let functions_at = deltas_at + deltas.len() as u64;
    let mut bytes = magic.to_le_bytes().to_vec();
    bytes.extend([0, 0, 1, 8]);
    let mut header = vec![functions.len() as u64, 0];
    if !absolute {
        header.push(text);
    }
    header.extend([names_at, 0, 0, deltas_at, functions_at]);
    bytes.extend(header.iter().flat_map(|word| word.to_le_bytes()));
    [bytes, names, deltas, entries, records].concat()
}

fn varint_into(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

const FUNCTIONS: [FunctionSpec<'_>; 3] = [
    (0, "main.main", &[(0, 4), (0x200, 300), (0, 1)]),
    (0x200, "runtime.goexit.abi0", &[(0, 7)]),
    (0x400, "", &[]),
];

/// `begin..end name depth@begin …`, relative to the text.
fn text(bytes: &[u8]) -> Vec<String> {
    let table = match Pclntab::parse(bytes, None) {
        Ok(table) => table,
        Err(reason) => return vec![format!("{reason:?}")],
    };
    let line = |function: Function<'_>| {
        let depths: Vec<_> = table
            .depths(&function)
            .map(|(range, depth)| format!(" {depth}@{:x}..{:x}", range.start - TEXT, range.end - TEXT))
            .collect();
        let Range { start, end } = function.range;
        let name = String::from_utf8_lossy(function.name);
        format!("{:x}..{:x} {name}{}", start - TEXT, end - TEXT, depths.concat())
    };
    table.functions().map(line).collect()
}

#[test]
fn each_layout_gives_bounds_names_and_depths() {
    let expect = [
        "0..200 main.main 0@0..4 512@4..130 0@130..131",
        "200..400 runtime.goexit.abi0 0@200..207",
        "400..1000 ",
    ];
    for magic in [0xffff_fffa, 0xffff_fff0, 0xffff_fff1] {
        assert_eq!(text(&table(magic, TEXT, &FUNCTIONS)), expect, "{magic:x}");
    }
}

#[test]
fn an_address_is_of_the_function_around_it() {
    for magic in [0xffff_fffa, 0xffff_fff0, 0xffff_fff1] {
        let bytes = table(magic, TEXT, &FUNCTIONS);
        let table = Pclntab::parse(&bytes, None).unwrap();
        let check = |at: u64, expect: Option<&str>| {
            let found =
                table.find(TEXT.wrapping_add(at)).map(|function| str::from_utf8(function.name).unwrap());
            assert_eq!(found, expect, "{at:x}");
        };
        check(u64::MAX, None);
        check(0, Some("main.main"));
        check(0x1ff, Some("main.main"));
        check(0x200, Some("runtime.goexit.abi0"));
        check(0xfff, Some(""));
        check(0x1000, None);
    }
}

#[test]
fn an_unusable_header_gives_its_reason() {
    let good = table(0xffff_fff1, TEXT, &FUNCTIONS);
    let check = |what: &str, at: usize, bytes: &[u8], expect: NoPclntab| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(Pclntab::parse(&bad, None).err(), Some(expect), "{what}");
    };
    check("Go 1.2", 0, &[0xfb], NoPclntab::UnknownVersion);
    check("32 bits", 7, &[4], NoPclntab::OtherMachine);
    check("too many functions", 8, &u64::MAX.to_le_bytes(), NoPclntab::BadFunctionCount);
    check("more functions than bytes", 8, &1000_u64.to_le_bytes(), NoPclntab::BadFunctionCount);
    check("nothing says where the text is", 24, &[0; 8], NoPclntab::NoTextAddress);
    check("names behind the end", 32, &u64::MAX.to_le_bytes(), NoPclntab::Truncated);
    assert_eq!(Pclntab::parse(&good[..20], None).err(), Some(NoPclntab::Truncated));
}

#[test]
fn the_text_is_where_the_table_says_or_the_caller() {
    for (stated, given, expect) in [(0, TEXT, TEXT), (TEXT, 7, TEXT)] {
        let bytes = table(0xffff_fff1, stated, &FUNCTIONS);
        let table = Pclntab::parse(&bytes, Some(given)).unwrap();
        assert_eq!(table.functions().next().unwrap().range, expect..expect + 0x200, "{stated:x} {given:x}");
    }
}

#[test]
fn functions_out_of_order_are_left_out() {
    let swapped = [FUNCTIONS[1], FUNCTIONS[0]];
    assert_eq!(text(&table(0xffff_fff1, TEXT, &swapped)), ["0..1000 main.main 0@0..4 512@4..130 0@130..131"]);
}

#[test]
fn depths_end_with_their_function_and_where_they_stand_still() {
    let check = |depths: &[(i64, u32)], expect: &str| {
        let bytes = table(0xffff_fff1, TEXT, &[(0xff0, "f", depths)]);
        assert_eq!(text(&bytes), [format!("ff0..1000 f{expect}")]);
    };
    check(&[(0, 4), (8, 100)], " 0@ff0..ff4 8@ff4..1000");
    check(&[(0, 4), (8, 0), (16, 4)], " 0@ff0..ff4");
    check(&[(-8, 4)], "");
}

proptest::proptest! {
    #[test]
    fn damaged_bytes_never_give_unordered_ranges(at in 0usize..300, byte: u8, length in 0usize..400) {
        let mut bytes = table(0xffff_fff1, TEXT, &FUNCTIONS);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(length);
        let Ok(table) = Pclntab::parse(&bytes, None) else { return Ok(()) };
        if let Some(found) = table.find(TEXT + at as u64 * 8) {
            proptest::prop_assert!(found.range.contains(&(TEXT + at as u64 * 8)));
        }
        for function in table.functions() {
            proptest::prop_assert!(function.range.start < function.range.end);
            let mut before = function.range.start;
            for (range, _) in table.depths(&function) {
                proptest::prop_assert!(range.start == before && range.end <= function.range.end);
                before = range.end;
            }
        }
    }
}
