//! Everything that opens, what is reported about it, and what does not open: through the one door that programs use.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::text;
use deepctx_storage::import::{ImportError, Kind};
use deepctx_storage::{Damage, FileFormat, FormatVersion, Note, OpenError, open};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::reader::FileReader as _;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A copy of a stored profile, whose manifest is edited.
fn stored(edit: impl FnOnce(&mut Value, &Path)) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx");
    fs::create_dir(&path).unwrap();
    for file in fs::read_dir(fixture("format-1.2")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), path.join(file.file_name())).unwrap();
    }
    let manifest = path.join("manifest.json");
    let mut json = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    edit(&mut json, &path);
    fs::write(&manifest, json.to_string()).unwrap();
    (folder, path)
}

fn totals(profile: &Profile) -> Vec<(Metric, u64)> {
    profile.tree.metrics().map(|metric| (metric, profile.tree.total(metric).sum)).collect()
}

const V1_2: FormatVersion = FormatVersion { major: 1, minor: 2 };

#[test]
fn folders_packed_files_and_other_tools_files_open_alike() {
    let folder = open(fixture("format-1.2")).unwrap();
    let packed = open(fixture("format-1.2.dctx")).unwrap();
    assert_eq!((folder.format, packed.format), (FileFormat::Folder(V1_2), FileFormat::Packed(V1_2)));
    assert_eq!((&folder.notes, &packed.notes), (&vec![], &vec![]));
    assert_eq!(totals(&folder.profile), totals(&packed.profile));
    let foreign = tempfile::NamedTempFile::new().unwrap();
    fs::write(foreign.path(), "app-7;main;train.py:step 9\n").unwrap();
    let foreign = open(foreign.path()).unwrap();
    assert_eq!((foreign.format, foreign.notes), (FileFormat::Imported(Kind::Folded), vec![]));
    assert_eq!(totals(&foreign.profile), [(Metric::Samples, 9)]);
}

/// The file of `nodes`, with a column of a later version and one that holds lists.
fn with_more_columns(file: &Path) -> Vec<u8> {
    let old = SerializedFileReader::new(fs::File::open(file).unwrap()).unwrap();
    let rows = old.metadata().file_metadata().num_rows() as usize;
    let group = old.get_row_group(0).unwrap();
    let numbers = |place| {
        let mut values = Vec::new();
        let column = group.get_column_reader(place).unwrap();
        let mut column = parquet::column::reader::get_typed_column_reader::<Int32Type>(column);
        column.read_records(rows, None, None, &mut values).unwrap();
        values
    };
    let schema = "message nodes {
        required binary colour (STRING);
        required int32 id (INTEGER(32,false));
        required int32 parent (INTEGER(32,false));
        required int32 frame (INTEGER(32,false));
        optional group lines (LIST) { repeated group list { required int32 element; } }
    }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Default::default()).unwrap();
    let mut to = writer.next_row_group().unwrap();
    let mut column = to.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&vec![ByteArray::from("red"); rows], None, None).unwrap();
    column.close().unwrap();
    for place in 0..3 {
        let mut column = to.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&numbers(place), None, None).unwrap();
        column.close().unwrap();
    }
    let mut column = to.next_column().unwrap().unwrap();
    let none = vec![0; rows];
    column.typed::<Int32Type>().write_batch(&[], Some(&none), Some(&none)).unwrap();
    column.close().unwrap();
    to.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn a_newer_minor_version_opens_with_a_note() {
    let (_folder, path) = stored(|manifest, path| {
        manifest["minor"] = 99.into();
        manifest["later"] = json!({"anything": [1, 2]});
        manifest["gpu"][1]["tier"] = "imagined".into();
        let segments = manifest["segments"].as_array_mut().unwrap();
        let nodes = segments.iter_mut().find(|segment| segment["table"] == "nodes").unwrap();
        let file = path.join(nodes["file"].as_str().unwrap());
        let bytes = with_more_columns(&file);
        nodes["bytes"] = bytes.len().into();
        nodes["crc32"] = crc32fast::hash(&bytes).into();
        fs::write(file, bytes).unwrap();
        let unknown =
            json!({"table": "dreams", "file": "dreams-000000.parquet", "rows": 1, "bytes": 1, "crc32": 1});
        segments.insert(0, unknown);
    });
    let opened = open(&path).unwrap();
    let found = FormatVersion { major: 1, minor: 99 };
    assert_eq!(opened.notes, [Note::NewerMinor { found, known: FormatVersion::CURRENT }]);
    assert_eq!(
        opened.notes[0].to_string(),
        "it has profile format 1.99, and this program knows 1.7: what 1.99 added is left out"
    );
    assert_eq!(opened.format, FileFormat::Folder(found));
    assert!(opened.is_complete());
    let before = open(fixture("format-1.2")).unwrap();
    assert_eq!(text::tree(&opened.profile), text::tree(&before.profile));
    assert_eq!(opened.profile.gpu.processes.len(), before.profile.gpu.processes.len());
}

#[test]
fn a_newer_major_version_is_refused_with_the_version_needed() {
    let (_folder, path) = stored(|manifest, _| {
        manifest["version"] = 2.into();
        manifest["minor"] = 1.into();
        manifest["meta"]["version"] = "0.9.3".into();
    });
    let error = open(&path).unwrap_err();
    assert_eq!(
        error.to_string().replace(path.to_str().unwrap(), "run.dctx"),
        "`run.dctx` has profile format 2.1, but this program reads format 1: \
         it needs a deepctx-bpf that reads format 2"
    );
    assert_eq!(
        error.hint().unwrap(),
        "update deepctx-bpf: version 0.9.3 wrote it, so that one or a newer one reads it"
    );
    let OpenError::NewerMajor { found, supported, writer, .. } = error else { panic!("{error}") };
    assert_eq!((found, supported), (FormatVersion { major: 2, minor: 1 }, FormatVersion::CURRENT));
    assert_eq!(writer.as_deref(), Some("0.9.3"));
    // Of a later major version nothing is known but where its number stands.
    let (_folder, path) = stored(|manifest, _| {
        *manifest =
            json!({"format": "deepctx-profile", "version": 7, "minor": "b", "meta": [], "segments": 1});
    });
    let error = open(&path).unwrap_err();
    assert!(matches!(error, OpenError::NewerMajor { writer: None, .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("update deepctx-bpf"));
}

#[test]
fn damage_and_an_early_end_are_notes() {
    let (_folder, path) = stored(|manifest, path| {
        manifest["complete"] = false.into();
        fs::write(path.join("values-000008.parquet"), "").unwrap();
    });
    let opened = open(&path).unwrap();
    assert!(!opened.is_complete());
    let [Note::NotEndedWell, Note::FileLeftOut { file, table, damage, because }] = &opened.notes[..] else {
        panic!("{:?}", opened.notes)
    };
    assert_eq!((file.as_str(), table.as_str()), ("values-000008.parquet", "values"));
    assert_eq!(*damage, Damage::Changed);
    assert!(because.contains("it has 0 bytes instead of"), "{because}");
    let notes: Vec<String> = opened.notes.iter().map(Note::to_string).collect();
    assert_eq!(notes[0], "the capture did not end well; this is what was written until its last flush");
    assert!(notes[1].starts_with("values-000008.parquet: left out: it has 0 bytes"), "{notes:?}");
}

#[test]
fn what_cannot_be_imported_is_a_note_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("stacks.txt");
        fs::write(&path, text).unwrap();
        path
    };
    let opened = open(file("app-7;main 9\nodd\n")).unwrap();
    assert_eq!(opened.profile.meta.target, "stacks.txt (file of folded stacks)");
    let [note @ Note::NotImported { count: 1, reason, .. }] = &opened.notes[..] else {
        panic!("{:?}", opened.notes)
    };
    assert_eq!(reason, "not-understood");
    assert!(note.to_string().starts_with("1 not-understood: "), "{note}");
    let error = open(file("hello")).unwrap_err();
    assert!(matches!(&error, OpenError::Import { source: ImportError::Unknown { .. }, .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("folded stacks are imported"));
    assert!(error.source().unwrap().to_string().contains("neither a profile nor anything"));
    // What is known needs no list of formats.
    let packed = open(file("PK\x03\x04")).unwrap_err();
    assert!(packed.to_string().contains("it is a zip archive") && packed.hint().is_none(), "{packed}");
    let path = folder.path().join("run.nsys-rep");
    fs::write(&path, [0, 1, 2, 3]).unwrap();
    let report = open(path).unwrap_err();
    assert!(report.to_string().contains("`nsys export ") && report.hint().is_none(), "{report}");
}

#[test]
fn errors_name_the_file_and_keep_their_sources() {
    let missing = open("/no/such.dctx").unwrap_err();
    assert_eq!(missing.to_string(), "no such profile: `/no/such.dctx`");
    assert!(matches!(&missing, OpenError::NotFound { path } if path == Path::new("/no/such.dctx")));
    assert!(missing.hint().unwrap().contains("record -o run.dctx"));
    let (_folder, path) = stored(|manifest, _| *manifest = json!({"format": "deepctx-profile"}));
    let corrupt = open(&path).unwrap_err();
    assert!(matches!(corrupt, OpenError::Corrupt { .. }), "{corrupt:?}");
    assert!(corrupt.to_string().contains("`manifest.json` is damaged: missing field `version`"), "{corrupt}");
    assert!(corrupt.source().is_some());
    let (_folder, path) = stored(|manifest, _| manifest["version"] = 0.into());
    assert!(matches!(open(&path), Err(OpenError::OlderMajor { .. })));
    fs::remove_file(path.join("manifest.json")).unwrap();
    assert!(matches!(open(&path), Err(OpenError::NotAProfile { .. })));
}

#[test]
fn a_file_of_ten_gigabytes_is_refused_at_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, start: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, start).unwrap();
        // The rest takes no room on the disk.
        fs::File::options().write(true).open(&path).unwrap().set_len(10 << 30).unwrap();
        path
    };
    let json = file("a.json", br#"{"traceEvents":[{"ph":"X""#);
    // Packed, whose content is damaged right at its begin.
    let gzip = file("b.json.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
    let zstd = file("c.json.zst", &[0x28, 0xb5, 0x2f, 0xfd]);
    for error in [
        open(&json).unwrap_err(),
        open(&gzip).unwrap_err(),
        deepctx_storage::open_traces(&[zstd]).unwrap_err(),
    ] {
        assert!(error.to_string().contains("it has more than 1073741824 bytes"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("trace fewer steps")), "{error}");
    }
}
