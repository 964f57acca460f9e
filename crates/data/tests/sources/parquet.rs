//! Parquet files, written with the reference writer.

use crate::{Folder, all, classes, dense, refused, says};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use starlings_data::{ColumnKind, DataSpec, Encoding, LabelNeed, Target};
use std::sync::Arc;

const SCHEMA: &str = "message m { required int64 id; optional double size; \
                      optional binary colour (UTF8); required binary class (UTF8); }";

/// Two row groups of 50 and 30 rows; `size` and `colour` are missing in every fifth row.
fn file() -> Vec<u8> {
    file_by(WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY))
}

fn file_by(properties: WriterPropertiesBuilder) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut bytes = Vec::new();
    let properties = properties.build();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    for rows in [0..50i64, 50..80] {
        let present: Vec<i64> = rows.clone().filter(|row| row % 5 != 0).collect();
        let levels: Vec<i16> = rows.clone().map(|row| i16::from(row % 5 != 0)).collect();
        let sizes: Vec<f64> = present.iter().map(|row| *row as f64 / 4.0).collect();
        let colour = |row: &i64| ByteArray::from(["red", "blue", "green"][*row as usize % 3]);
        let colours: Vec<ByteArray> = present.iter().map(colour).collect();
        let classes: Vec<ByteArray> = rows
            .clone()
            .map(|row| ByteArray::from(if row < 10 { "few" } else { "many" }))
            .collect();
        let ids: Vec<i64> = rows.collect();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&sizes, Some(&levels), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&colours, Some(&levels), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&classes, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

#[test]
fn columns_keep_their_types_and_gaps() {
    let folder = Folder::new();
    let (survey, table) = classes(&folder.spec("a.parquet", file()));
    assert_eq!((survey.rows, survey.schema.features), (80, 5));
    let missing: Vec<u64> = survey.schema.columns.iter().map(|c| c.missing).collect();
    assert_eq!(missing, [0, 16, 16]);
    assert_eq!(survey.schema.target, Target::Classes(vec!["few".into(), "many".into()]));
    assert_eq!(survey.class_rows, [10, 70]);
    let codes = ["blue", "green", "red"].map(String::from).to_vec();
    assert_eq!(survey.schema.columns[2].kind, ColumnKind::Categorical { codes });
    let ColumnKind::Numeric { mean } = survey.schema.columns[1].kind else {
        panic!("size is numbers")
    };
    assert_eq!(dense(&table)[..5], [0.0, mean as f32, 0.0, 0.0, 0.0]);
    assert_eq!(dense(&table)[5 * 79..], [79.0, 19.75, 1.0, 0.0, 0.0].map(|v: f32| v));
}

#[test]
fn every_way_to_write_a_column_reads_alike() {
    use parquet::basic::Encoding::{
        DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY, PLAIN,
    };
    let folder = Folder::new();
    let (survey, table) = classes(&folder.spec("a.parquet", file()));
    for (texts, numbers) in [
        (PLAIN, PLAIN),
        (DELTA_BYTE_ARRAY, DELTA_BINARY_PACKED),
        (DELTA_LENGTH_BYTE_ARRAY, DELTA_BINARY_PACKED),
    ] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_dictionary_enabled(false)
                // Several pages in each group.
                .set_data_page_row_count_limit(7)
                .set_write_batch_size(7)
                .set_encoding(texts)
                .set_column_encoding("id".into(), numbers)
                .set_column_encoding("size".into(), PLAIN);
            let name = format!("{texts}-{version:?}.parquet");
            let (other, rows) = classes(&folder.spec(&name, file_by(properties)));
            assert_eq!((other.schema, other.rows), (survey.schema.clone(), 80), "{name}");
            assert_eq!(dense(&rows), dense(&table), "{name}");
        }
    }
}

#[test]
fn columns_are_chosen_and_numbers_serve_as_labels_or_identities() {
    let folder = Folder::new();
    let mut spec = folder.spec("unknown", file()).label("size");
    spec.features = Some(vec!["id".into()]);
    says(&refused(&spec, LabelNeed::Number), &["row 0, column 'size'", "every row needs one"]);
    spec.label = Some("id".into());
    spec.features = Some(vec!["size".into()]);
    let (survey, table) = all(&spec, Encoding::OneHot, LabelNeed::Number);
    assert_eq!((survey.schema.features, table.labels[79]), (1, 79.0));
    spec.label = None;
    spec.features = Some(vec!["id".into(), "colour".into()]);
    let (survey, _) = all(&spec, Encoding::Identity, LabelNeed::None);
    assert_eq!((survey.schema.identities(0), survey.schema.identities(1)), (80, 3));
}

#[test]
fn damaged_files_are_refused_and_never_panic() {
    let folder = Folder::new();
    let sound = file();
    let cut = folder.spec("a.parquet", &sound[..sound.len() - 9]);
    says(&refused(&cut, LabelNeed::None), &["a.parquet is not a sound Parquet file"]);
    says(&refused(&folder.spec("e.parquet", "PAR1"), LabelNeed::None), &["not a sound Parquet"]);
    let mut refusals = 0;
    for at in (0..sound.len()).step_by(5) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0xff;
        let spec: DataSpec = folder.spec("d.parquet", &bytes);
        let loaded = starlings_data::load_all(&spec, Encoding::OneHot, LabelNeed::Class, 1);
        refusals += usize::from(loaded.is_err());
    }
    assert!(refusals > sound.len() / 20, "{refusals} of {}", sound.len());
}

/// Where the library skips booleans they take no bytes: these lists would keep it counting for an hour.
#[test]
fn endless_lists_are_refused_at_once() {
    let folder = Folder::new();
    // A field that nobody knows, fifteen behind the one before it: a list of 2^31 − 1 booleans.
    let list: [u8; 7] = [0xf9, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07];
    let description = [list.repeat(400), vec![0]].concat();
    let length = (description.len() as u32).to_le_bytes();
    let bytes = [&b"PAR1"[..], &description, &length, b"PAR1"].concat();
    let refusal = refused(&folder.spec("a.parquet", bytes), LabelNeed::None);
    says(&refusal, &["not a sound Parquet file", "its description contradicts itself"]);
    // The first page begins behind the magic number.
    let mut bytes = file();
    bytes[4..4 + list.len()].copy_from_slice(&list);
    let refusal = refused(&folder.spec("b.parquet", bytes), LabelNeed::None);
    says(&refusal, &["not a sound Parquet file", "the header of a page contradicts itself"]);
}
