//! Bytes that no honest peer sent.

use super::all;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use starlings_codec::{Into as Take, Part, Residuals, RowsPart, Scheme, residuals, sparse};
use starlings_core::{Kind, Rng, Rows, Values};
use starlings_testkit::conformance::codec;

const KINDS: [Kind; 3] = [Kind::F32, Kind::F64, Kind::I64];

proptest! {
    // Regression files would be written beside the sources; a failing case is printed with its seed instead.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn any_bytes_give_an_answer(bytes: Vec<u8>, len in 0usize..40, total: u32, width in 0u32..4) {
        for (label, scheme) in all() {
            match scheme {
                Scheme::Numbers(codec) => for kind in KINDS {
                    let taken = codec.decode(&bytes, &mut Values::zeros(kind, len), 0..len, Take::Add);
                    let right = bytes.len() == codec.encoded_len(kind, len);
                    prop_assert!(taken.is_err() || right, "{label}");
                    let taken = codec.decode_rows(&bytes, &Rows::none(kind, total, width));
                    prop_assert!(taken.is_err() || taken.is_ok_and(|rows| rows.is_sound()), "{label}");
                },
                Scheme::Contributions(compressor) => {
                    let mut into = vec![1.0; len];
                    let taken = compressor.decode(&bytes, &mut into);
                    prop_assert!(taken.is_ok() || into == vec![1.0; len], "{label}");
                    let like = Rows::none(Kind::F32, total, width);
                    let taken = residuals::decode_rows(&*compressor, &bytes, &like);
                    prop_assert!(taken.is_err() || taken.is_ok_and(|rows| rows.is_sound()), "{label}");
                },
                Scheme::Rounds(_) | Scheme::Factors | Scheme::Auto(_) => {}
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
        let damage = |bytes: &mut Vec<u8>| {
            let place = at % bytes.len();
            bytes[place] ^= flip;
            if let Some(cut) = cut {
                bytes.truncate(cut % bytes.len());
            }
        };
        for (label, scheme) in all() {
            for kind in KINDS {
                let (rows, like) = (rows(kind), Rows::none(kind, 100, 2));
                let mut bytes = Vec::new();
                let taken = match &scheme {
                    Scheme::Numbers(codec) => {
                        codec.encode_rows(&rows, &mut bytes);
                        damage(&mut bytes);
                        codec.decode_rows(&bytes, &like)
                    }
                    Scheme::Contributions(compressor) if kind != Kind::I64 => {
                        let part = RowsPart { block: "table", rows: &rows };
                        let mut noise = Rng::named(1, "hostile", &[]);
                        Residuals::default().encode_rows(&**compressor, part, &mut noise, &mut bytes);
                        damage(&mut bytes);
                        residuals::decode_rows(&**compressor, &bytes, &like)
                    }
                    _ => continue,
                };
                prop_assert!(taken.is_err() || taken.is_ok_and(|rows| rows.is_sound()), "{label}");
            }
        }
    }

    #[test]
    fn any_numbers_pass_a_compressor(values: Vec<f32>, seed: u64) {
        let finite = values.iter().all(|x| x.is_finite());
        for (label, scheme) in all() {
            let Scheme::Contributions(compressor) = scheme else { continue };
            let (mut bytes, mut held) = (Vec::new(), Residuals::default());
            let given = Values::F32(values.clone());
            let part = Part { block: "part", from: 0, values: &given, range: 0..values.len() };
            held.encode(&*compressor, part, &mut Rng::named(seed, "hostile", &[]), &mut bytes);
            let mut into = vec![0.0; values.len()];
            prop_assert_eq!(compressor.decode(&bytes, &mut into), Ok(()), "{}", label);
            prop_assert_eq!(into.iter().all(|x| x.is_finite()), finite, "{}", label);
        }
    }

    #[test]
    fn sparse_numbers_come_back_and_wrong_bytes_do_not(
        numbers in proptest::collection::vec((any::<bool>(), any::<u64>()), 0..200),
        noise: Vec<u8>,
        cut: usize,
        from in 0usize..50,
    ) {
        let bits = || numbers.iter().map(|(keep, bits)| if *keep { *bits } else { 0 });
        for values in [
            Values::F32(bits().map(|bits| f32::from_bits((bits >> 32) as u32)).collect()),
            Values::F64(bits().map(f64::from_bits).collect()),
            Values::I64(bits().map(|bits| bits as i64).collect()),
        ] {
            let range = from.min(values.len())..values.len();
            let mut bytes = Vec::new();
            sparse::encode(&values, range.clone(), &mut bytes);
            let before = codec::ordinary(values.kind(), values.len());
            let (mut put, mut sum) = (before.clone(), before.clone());
            prop_assert_eq!(sparse::decode(&bytes, &mut put, range.clone(), Take::Put), Ok(()));
            prop_assert!(same(&put.slice(range.start, range.end), &values.slice(range.start, range.end)));
            prop_assert!(same(&put.slice(0, range.start), &before.slice(0, range.start)));
            prop_assert_eq!(sparse::decode(&bytes, &mut sum, range.clone(), Take::Add), Ok(()));
            let mut expected = before.clone();
            prop_assert!(expected.add_at(range.start, &values.slice(range.start, range.end)).is_ok());
            prop_assert!(same(&sum, &expected));
            let mut untouched = before.clone();
            let short = &bytes[..cut % bytes.len()];
            prop_assert!(sparse::decode(short, &mut untouched, range.clone(), Take::Put).is_err());
            prop_assert!(same(&untouched, &before));
            if sparse::decode(&noise, &mut untouched, range, Take::Add).is_err() {
                prop_assert!(same(&untouched, &before));
            }
        }
    }
}

/// The same bits, where any NaN is as good as another.
fn same(a: &Values, b: &Values) -> bool {
    match (a, b) {
        (Values::F32(a), Values::F32(b)) => {
            a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
        }
        (Values::F64(a), Values::F64(b)) => {
            a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
        }
        (a, b) => a == b,
    }
}
