//! Codecs.

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use starlings_codec::{CODECS, Codec, Into as Take, Law, Malformed};
use starlings_core::{Entry, Kind, Rows, Values};
use starlings_testkit::conformance::{codec, variants};
use std::ops::Range;

fn build(name: &str, params: &str) -> Box<dyn Codec> {
    let entry = Entry::find("codec", CODECS, name).expect("in the catalogue");
    let given = params.parse().expect("a table");
    (entry.build)(&entry.check("codec", &given).expect("allowed")).expect("builds")
}

fn all() -> Vec<(String, Box<dyn Codec>)> {
    let built = CODECS.iter().flat_map(|entry| {
        variants(entry).into_iter().map(|(label, params)| (label, (entry.build)(&params)))
    });
    built.map(|(label, codec)| (label, codec.expect("builds"))).collect()
}

#[test]
fn every_codec_obeys_the_laws() {
    for (label, codec) in all() {
        codec::check(&*codec).unwrap_or_else(|law| panic!("{label}: {law}"));
    }
}

proptest! {
    // Regression files would be written beside the sources; a failing case is printed with its seed instead.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn any_bytes_give_an_answer(bytes: Vec<u8>, len in 0usize..40, total: u32, width in 0u32..4) {
        for (label, codec) in all() {
            for kind in [Kind::F32, Kind::F64, Kind::I64] {
                let taken = codec.decode(&bytes, &mut Values::zeros(kind, len), 0..len, Take::Add);
                let right = bytes.len() == codec.encoded_len(kind, len);
                prop_assert!(taken.is_err() || right, "{label}");
                let taken = codec.decode_rows(&bytes, &Rows::none(kind, total, width));
                prop_assert!(taken.is_err() || taken.is_ok_and(|rows| rows.is_sound()), "{label}");
            }
        }
    }

    #[test]
    fn damaged_rows_are_refused_or_sound(
        index in proptest::collection::btree_set(0u32..100, 0..20),
        at: usize,
        flip in 1u8..,
        cut in any::<Option<usize>>(),
    ) {
        let rows = |kind| Rows {
            total: 100,
            width: 2,
            index: index.iter().copied().collect(),
            values: codec::ordinary(kind, 2 * index.len()),
        };
        for (label, codec) in all() {
            for kind in [Kind::F32, Kind::F64, Kind::I64] {
                let mut bytes = Vec::new();
                codec.encode_rows(&rows(kind), &mut bytes);
                let place = at % bytes.len();
                bytes[place] ^= flip;
                if let Some(cut) = cut {
                    bytes.truncate(cut % bytes.len());
                }
                let taken = codec.decode_rows(&bytes, &Rows::none(kind, 100, 2));
                prop_assert!(taken.is_err() || taken.is_ok_and(|rows| rows.is_sound()), "{label}");
            }
        }
    }
}

fn through(codec: &dyn Codec, value: f64) -> f64 {
    let mut bytes = Vec::new();
    codec.encode(&Values::F64(vec![value]), 0, 1, &mut bytes);
    let mut got = Values::zeros(Kind::F64, 1);
    codec.decode(&bytes, &mut got, 0..1, Take::Put).expect("its own");
    got.as_f64().expect("f64")[0]
}

#[test]
fn raw_keeps_all_digits_and_half_keeps_bytes() {
    let (raw, half) = (build("raw", ""), build("half", ""));
    let third = 1.0 / 3.0;
    assert_eq!(through(&*raw, third).to_bits(), third.to_bits());
    assert!((through(&*half, third) - third).abs() > 1e-6);
    let lengths = |codec: &dyn Codec| {
        [Kind::F32, Kind::F64, Kind::I64].map(|kind| codec.encoded_len(kind, 10))
    };
    assert_eq!(lengths(&*raw), [40, 80, 80]);
    assert_eq!(lengths(&*half), [20, 20, 80]);
}

#[test]
fn fp16_has_more_digits_and_bf16_more_range() {
    let (fp16, bf16) = (build("half", "format = 'fp16'"), build("half", "format = 'bf16'"));
    let error = |codec: &dyn Codec| (through(codec, 1.001) - 1.001).abs();
    assert!(error(&*fp16) < 3e-4 && error(&*bf16) > 9e-4);
    assert!(through(&*fp16, 1e6).is_infinite() && through(&*fp16, 1e-9) == 0.0);
    assert!((through(&*bf16, 1e6) / 1e6 - 1.0).abs() < 0.004);
    assert!((through(&*bf16, 1e-9) / 1e-9 - 1.0).abs() < 0.004);
}

/// Raw with a fault in what it encodes or decodes.
struct Broken {
    law: Law,
    encoded: fn(&mut Vec<u8>),
    decoded: fn(&mut Values),
    trusting: bool,
}

impl Codec for Broken {
    fn law(&self) -> Law {
        self.law
    }

    fn encoded_len(&self, kind: Kind, len: usize) -> usize {
        build("raw", "").encoded_len(kind, len)
    }

    fn encode(&self, values: &Values, from: usize, to: usize, out: &mut Vec<u8>) {
        build("raw", "").encode(values, from, to, out);
        (self.encoded)(out);
    }

    fn decode(
        &self,
        bytes: &[u8],
        values: &mut Values,
        range: Range<usize>,
        how: Take,
    ) -> Result<(), Malformed> {
        let taken = build("raw", "").decode(bytes, values, range, how);
        if taken.is_ok() {
            (self.decoded)(values);
        }
        if self.trusting { Ok(()) } else { taken }
    }
}

#[test]
fn broken_codecs_are_found_out() {
    let sound = || Broken { law: Law::Exact, encoded: |_| {}, decoded: |_| {}, trusting: false };
    codec::check(&sound()).unwrap();
    let cases = [
        (Broken { encoded: |out| out.push(0), ..sound() }, "encoded_len says"),
        (Broken { encoded: |out| out[0] = 0, ..sound() }, "does not append"),
        (Broken { trusting: true, ..sound() }, "bytes were taken for"),
        (Broken { decoded: |values| scale(values, 1.0 + 1e-6), ..sound() }, "came back as"),
        (
            Broken {
                law: Law::Bounded { relative: 1e-3 },
                decoded: |values| scale(values, 1.0 + 1e-4),
                ..sound()
            },
            "encoded to other bytes",
        ),
        (
            Broken {
                decoded: |values| *values = Values::zeros(values.kind(), values.len()),
                ..sound()
            },
            "came back as",
        ),
    ];
    for (broken, law) in cases {
        let found = codec::check(&broken).unwrap_err();
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}

fn scale(values: &mut Values, by: f64) {
    match values {
        Values::F32(inner) => inner.iter_mut().for_each(|x| *x *= by as f32),
        Values::F64(inner) => inner.iter_mut().for_each(|x| *x *= by),
        Values::I64(_) => {}
    }
}
