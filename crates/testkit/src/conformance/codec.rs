//! The laws of codecs: what comes back, how long it is on the wire, and what happens to bytes that no honest
//! peer sent.

pub mod cheapest;
pub mod compressor;
mod feedback;
pub mod rounds;

use super::{Verdict, ensure};
use starlings_codec::{Codec, Into as Take, Law, Scheme};
use starlings_core::{Kind, Rng, Rows, Values};

/// All laws of whichever scheme it is.
///
/// # Errors
/// The first broken law.
pub fn check_scheme(scheme: &Scheme) -> Verdict {
    match scheme {
        Scheme::Numbers(codec) => check(&**codec),
        Scheme::Contributions(compressor) => compressor::check(&**compressor),
        Scheme::Rounds(rounds) => rounds::check(&**rounds),
        Scheme::Auto(cheapest) => cheapest::check(&**cheapest),
        // The learner emits factors and the engine carries them: there is nothing here that could go wrong.
        Scheme::Factors => Ok(()),
    }
}

/// All laws of a codec of numbers.
///
/// # Errors
/// The first broken law.
pub fn check(codec: &dyn Codec) -> Verdict {
    for kind in [Kind::F32, Kind::F64, Kind::I64] {
        // Lengths around the batches that codecs like to work in.
        for len in [0, 1, 2, 7, 511, 512, 513, 1500] {
            for values in [ordinary(kind, len), special(kind, len)] {
                dense(codec, &values).map_err(|law| format!("{len} numbers of {kind:?}: {law}"))?;
            }
        }
        rows(codec, kind).map_err(|law| format!("rows of {kind:?}: {law}"))?;
    }
    Ok(())
}

/// Random numbers of the range that every codec carries; any integers.
#[must_use]
pub fn ordinary(kind: Kind, len: usize) -> Values {
    let mut rng = Rng::named(1, "codec", &[len as u64]);
    let mut float = || {
        let sign = if rng.below(2) == 0 { 1.0 } else { -1.0 };
        sign * 2f64.powf(29.9 * rng.uniform() - 14.0)
    };
    match kind {
        Kind::F32 => Values::F32((0..len).map(|_| float() as f32).collect()),
        Kind::F64 => Values::F64((0..len).map(|_| float()).collect()),
        Kind::I64 => Values::I64((0..len).map(|_| rng.next_u64() as i64).collect()),
    }
}

/// Numbers at which arithmetic turns odd, and more of random bits.
#[must_use]
pub fn special(kind: Kind, len: usize) -> Values {
    const ODD: [f64; 12] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.0,
        f64::MIN_POSITIVE,
        -5e-324,
        1e-40,
        6e-8,
        65_504.0,
        f64::MAX,
        -f32::MAX as f64,
    ];
    const WHOLE: [i64; 5] = [i64::MIN, i64::MAX, -1, 0, (1 << 53) + 1];
    let mut rng = Rng::named(2, "codec", &[len as u64]);
    let bits = move || rng.next_u64();
    let random = std::iter::repeat_with(bits);
    match kind {
        Kind::F32 => {
            let odd = ODD.iter().map(|&value| value as f32);
            Values::F32(
                odd.chain(random.map(|bits| f32::from_bits(bits as u32))).take(len).collect(),
            )
        }
        Kind::F64 => {
            Values::F64(ODD.into_iter().chain(random.map(f64::from_bits)).take(len).collect())
        }
        Kind::I64 => {
            Values::I64(WHOLE.into_iter().chain(random.map(|bits| bits as i64)).take(len).collect())
        }
    }
}

fn dense(codec: &dyn Codec, values: &Values) -> Verdict {
    let (kind, len) = (values.kind(), values.len());
    for (from, to) in [(0, len), (len / 3, len - len / 3), (len / 2, len / 2)] {
        let mut bytes = vec![0xaa];
        codec.encode(values, from, to, &mut bytes);
        ensure!(bytes[0] == 0xaa, "encode does not append");
        let bytes = &bytes[1..];
        ensure!(
            bytes.len() == codec.encoded_len(kind, to - from),
            "{} bytes for {from}..{to}, encoded_len says {}",
            bytes.len(),
            codec.encoded_len(kind, to - from)
        );
        if let Some(borrowed) = codec.borrow(values, from, to) {
            ensure!(borrowed == bytes, "borrow differs from encode");
        }
        let mut put = Values::zeros(kind, len);
        decode(codec, bytes, &mut put, (from, to), Take::Put)?;
        for at in 0..len {
            match (from..to).contains(&at) {
                true => number(codec.law(), &Number::of(values, at), &Number::of(&put, at))?,
                false => ensure!(Number::of(&put, at).bits == 0, "number {at} outside was changed"),
            }
        }
        let mut again = Vec::new();
        codec.encode(&put, from, to, &mut again);
        ensure!(again == bytes, "what was decoded is encoded to other bytes");
        adds(codec, bytes, &put, (from, to))?;
        refusals(codec, bytes, kind, to - from)?;
    }
    Ok(())
}

fn decode(
    codec: &dyn Codec,
    bytes: &[u8],
    values: &mut Values,
    (from, to): (usize, usize),
    how: Take,
) -> Verdict {
    codec
        .decode(bytes, values, from..to, how)
        .map_err(|why| format!("it refuses its own: {}", why.0))
}

/// A number of any kind: its bits, and as a float.
struct Number {
    bits: u64,
    float: Option<f64>,
}

impl Number {
    fn of(values: &Values, at: usize) -> Number {
        match values {
            Values::F32(v) => {
                Number { bits: u64::from(v[at].to_bits()), float: Some(f64::from(v[at])) }
            }
            Values::F64(v) => Number { bits: v[at].to_bits(), float: Some(v[at]) },
            Values::I64(v) => Number { bits: v[at] as u64, float: None },
        }
    }
}

/// Whether a number came back as the law promises.
fn number(law: Law, sent: &Number, got: &Number) -> Verdict {
    let (Law::Bounded { relative }, Some(x), Some(y)) = (law, sent.float, got.float) else {
        ensure!(sent.bits == got.bits, "{:#x} came back as {:#x}", sent.bits, got.bits);
        return Ok(());
    };
    if x.is_nan() {
        ensure!(y.is_nan(), "NaN came back as {y}");
        return Ok(());
    }
    ensure!(!y.is_nan(), "{x:e} came back as NaN");
    ensure!(x.is_sign_negative() == y.is_sign_negative(), "{x:e} came back as {y:e}");
    if x == 0.0 || x.is_infinite() {
        ensure!(x == y, "{x:e} came back as {y:e}");
    }
    if (2f64.powi(-14)..=65_504.0).contains(&x.abs()) {
        ensure!((x - y).abs() <= relative * x.abs(), "{x:e} came back as {y:e}");
    }
    Ok(())
}

/// Adding gives what putting and then adding gives, in place and beside, and nothing outside the range.
fn adds(codec: &dyn Codec, bytes: &[u8], put: &Values, (from, to): (usize, usize)) -> Verdict {
    let base = ordinary(put.kind(), put.len());
    let mut beside = Values::zeros(put.kind(), put.len());
    let refusal = |why: starlings_codec::Malformed| why.0.to_string();
    codec.decode_beside(bytes, &base, &mut beside, from..to).map_err(refusal)?;
    let mut sum = base;
    let mut expected = sum.clone();
    expected.add_at(from, &put.slice(from, to)).map_err(|error| error.to_string())?;
    decode(codec, bytes, &mut sum, (from, to), Take::Add)?;
    ensure!(same_bits(&sum, &expected), "adding is not putting and then adding");
    let mut alone = Values::zeros(put.kind(), put.len());
    alone.copy_range(&sum, from..to);
    ensure!(same_bits(&beside, &alone), "adding beside is not adding");
    Ok(())
}

/// The same numbers, where any NaN is as good as another: an addition may keep either payload.
fn same_bits(a: &Values, b: &Values) -> bool {
    let nan = |number: &Number| number.float.is_some_and(f64::is_nan);
    let same = |a: Number, b: Number| a.bits == b.bits || (nan(&a) && nan(&b));
    a.len() == b.len() && (0..a.len()).all(|at| same(Number::of(a, at), Number::of(b, at)))
}

/// Cut or lengthened bytes are refused and change nothing; damaged ones may be taken for other numbers.
fn refusals(codec: &dyn Codec, bytes: &[u8], kind: Kind, len: usize) -> Verdict {
    let untouched = ordinary(kind, len);
    let mut values = untouched.clone();
    let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
    let cuts = (0..bytes.len()).map(|end| &bytes[..end]);
    for wrong in cuts.chain([&longer[..]]) {
        for how in [Take::Add, Take::Put] {
            let taken = codec.decode(wrong, &mut values, 0..len, how).is_ok();
            ensure!(!taken, "{} bytes were taken for {}", wrong.len(), bytes.len());
        }
        let mut room = untouched.clone();
        let taken = codec.decode_beside(wrong, &untouched, &mut room, 0..len).is_ok();
        ensure!(!taken, "{} bytes were taken for {} beside", wrong.len(), bytes.len());
    }
    ensure!(values == untouched, "refused bytes changed numbers");
    let mut rng = Rng::named(3, "codec", &[len as u64]);
    for _ in 0..if bytes.is_empty() { 0 } else { 16 } {
        let damaged = damage(bytes, &mut rng);
        // Either answer will do; a panic will not.
        let _ = codec.decode(&damaged, &mut values, 0..len, Take::Add);
    }
    Ok(())
}

fn damage(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64) as usize;
        damaged[at] ^= 1 << rng.below(8);
    }
    damaged
}

fn rows(codec: &dyn Codec, kind: Kind) -> Verdict {
    let tables: [(u32, u32, Vec<u32>); 6] = [
        (0, 3, vec![]),
        (10, 0, vec![1, 9]),
        (10, 3, vec![]),
        (10, 3, vec![0, 4, 9]),
        (1000, 7, (0..1000).step_by(3).collect()),
        (u32::MAX, 1, vec![0, u32::MAX - 1]),
    ];
    for (total, width, index) in tables {
        let values = ordinary(kind, index.len() * width as usize);
        let sent = Rows { total, width, index, values };
        round_trip(codec, &sent)
            .map_err(|law| format!("{} of {total}: {law}", sent.index.len()))?;
    }
    hostile_rows(codec, kind)
}

fn round_trip(codec: &dyn Codec, sent: &Rows) -> Verdict {
    let kind = sent.values.kind();
    let like = Rows::none(kind, sent.total, sent.width);
    let mut bytes = Vec::new();
    codec.encode_rows(sent, &mut bytes);
    let got = codec.decode_rows(&bytes, &like).map_err(|why| format!("its own: {}", why.0))?;
    ensure!(got.is_sound() && got.values.kind() == kind, "unsound rows came back");
    ensure!(
        (got.total, got.width, &got.index) == (sent.total, sent.width, &sent.index),
        "other rows came back"
    );
    for at in 0..sent.values.len() {
        number(codec.law(), &Number::of(&sent.values, at), &Number::of(&got.values, at))?;
    }
    for end in 0..bytes.len() {
        ensure!(
            codec.decode_rows(&bytes[..end], &like).is_err(),
            "cut to {end} bytes, it is taken"
        );
    }
    let mut rng = Rng::named(4, "codec", &[bytes.len() as u64]);
    for _ in 0..64 {
        if let Ok(taken) = codec.decode_rows(&damage(&bytes, &mut rng), &like) {
            ensure!(taken.is_sound(), "damaged rows were taken and are unsound");
        }
    }
    Ok(())
}

/// Counts that promise more than there is, and row numbers that no table has.
fn hostile_rows(codec: &dyn Codec, kind: Kind) -> Verdict {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    for width in [0, 1, u32::MAX] {
        let like = Rows::none(kind, u32::MAX, width);
        for count in [1, 2, 1 << 30, u32::MAX] {
            let bytes = words(&[count]);
            ensure!(codec.decode_rows(&bytes, &like).is_err(), "{count} rows in no bytes");
        }
        if width > 0 {
            let bytes = words(&[1, 0]);
            ensure!(
                codec.decode_rows(&bytes, &like).is_err(),
                "a row of {width} numbers in no bytes"
            );
        }
    }
    for index in [[3, 3], [4, 3], [3, 10], [3, u32::MAX]] {
        let bad = Rows { total: 10, width: 2, index: index.to_vec(), values: ordinary(kind, 4) };
        let mut bytes = Vec::new();
        codec.encode_rows(&bad, &mut bytes);
        let taken = codec.decode_rows(&bytes, &Rows::none(kind, 10, 2));
        ensure!(taken.is_err(), "rows {index:?} of ten were taken");
    }
    Ok(())
}
