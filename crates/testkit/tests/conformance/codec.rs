//! Codecs.

mod feedback;
mod hostile;
mod neighbours;

use starlings_codec::{
    CODECS, Codec, Compressor, Feedback, Into as Take, Keeps, Law, Malformed, Next, Rounds, Scheme,
    Shapes,
};
use starlings_core::{Ability, Body, Entry, Kind, Rng, Update, Values};
use starlings_testkit::conformance::{codec, variants};
use std::collections::BTreeMap;
use std::ops::Range;

fn scheme(name: &str, params: &str) -> Scheme {
    let entry = Entry::find("codec", CODECS, name).expect("in the catalogue");
    let given = params.parse().expect("a table");
    (entry.build)(&entry.check("codec", &given).expect("allowed")).expect("builds")
}

fn build(name: &str, params: &str) -> Box<dyn Codec> {
    let Scheme::Numbers(codec) = scheme(name, params) else { panic!("{name} encodes no numbers") };
    codec
}

fn compressor(name: &str, params: &str) -> Box<dyn Compressor> {
    let Scheme::Contributions(compressor) = scheme(name, params) else {
        panic!("{name} is no compressor")
    };
    compressor
}

fn rounds(name: &str, params: &str) -> Box<dyn Rounds> {
    let Scheme::Rounds(rounds) = scheme(name, params) else { panic!("{name} has no rounds") };
    rounds
}

/// Every entry at the settings where entries tend to go wrong.
fn all() -> Vec<(String, Scheme)> {
    let built = CODECS.iter().flat_map(|entry| {
        variants(entry).into_iter().map(|(label, params)| (label, (entry.build)(&params)))
    });
    built.map(|(label, scheme)| (label, scheme.expect("builds"))).collect()
}

#[test]
fn every_codec_obeys_the_laws() {
    for (label, scheme) in all() {
        codec::check_scheme(&scheme).unwrap_or_else(|law| panic!("{label}: {law}"));
    }
}

#[test]
fn settings_that_are_no_whole_numbers_obey_the_laws_too() {
    for (name, params) in [
        ("top-k", "ratio = 1.0"),
        ("top-k", "ratio = 0.3\nmomentum = 0.9"),
        ("top-k", "ratio = 0.000001"),
        ("threshold", "threshold = 1e-30"),
        ("threshold", "threshold = 1e30"),
        ("threshold", "threshold = 0.3"),
        ("threshold", "threshold = 0.3\nmomentum = 0.9"),
        ("ternary", "clip = 0"),
        ("ternary", "clip = 0.5"),
        ("int8", "levels = 3\nbucket = 9\nnorm = 'euclidean'"),
        ("random-k", "ratio = 1.0"),
        ("random-k", "ratio = 0.3"),
    ] {
        let law = codec::check_scheme(&scheme(name, params));
        law.unwrap_or_else(|law| panic!("{name} with {params}: {law}"));
    }
}

#[test]
fn abilities_are_those_of_the_scheme() {
    for entry in CODECS {
        let (label, params) = variants(entry).swap_remove(0);
        let gives = |ability| entry.gives.contains(&ability);
        let (summable, one_way) = (gives(Ability::Summable), gives(Ability::OneWay));
        let whole = entry.needs.contains(&Ability::Contributions);
        let expected = match (entry.build)(&params).expect("builds") {
            Scheme::Numbers(_) => (true, true, false),
            Scheme::Rounds(_) => (true, false, false),
            Scheme::Contributions(_) => (false, true, true),
            Scheme::Factors | Scheme::Auto(_) => (false, false, true),
        };
        assert_eq!((summable, one_way, whole), expected, "{label}");
        let exact = ["raw", "auto", "factors"].contains(&entry.name);
        assert_eq!(gives(Ability::Lossless), exact, "{label}");
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

/// A sound compressor with a fault in what it encodes or decodes.
struct Faulty {
    inner: Box<dyn Compressor>,
    keeps: Option<Keeps>,
    encoded: fn(&[f32]) -> Vec<f32>,
    decoded: fn(&mut [f32]),
    trusting: bool,
}

impl Compressor for Faulty {
    fn keeps(&self) -> Keeps {
        self.keeps.unwrap_or(self.inner.keeps())
    }

    fn feedback(&self) -> Option<Feedback> {
        self.inner.feedback()
    }

    fn encode(&self, values: &[f32], noise: &mut Rng, out: &mut Vec<u8>) {
        self.inner.encode(&(self.encoded)(values), noise, out);
    }

    fn decode(&self, bytes: &[u8], into: &mut [f32]) -> Result<(), Malformed> {
        let taken = self.inner.decode(bytes, into);
        (self.decoded)(into);
        if self.trusting { Ok(()) } else { taken }
    }
}

#[test]
fn faulty_compressors_are_found_out() {
    let sound = |name| Faulty {
        inner: compressor(name, ""),
        keeps: None,
        encoded: <[f32]>::to_vec,
        decoded: |_| {},
        trusting: false,
    };
    let finite =
        |values: &[f32]| values.iter().map(|x| if x.is_finite() { *x } else { 0.0 }).collect();
    let cases = [
        (Faulty { trusting: true, ..sound("int8") }, "bytes were taken for"),
        (
            Faulty { decoded: |into| into.iter_mut().for_each(|x| *x *= 1.5), ..sound("top-k") },
            "decoding does not add",
        ),
        (Faulty { encoded: finite, ..sound("one-bit") }, "arrived as finite numbers"),
        (Faulty { encoded: finite, ..sound("threshold") }, "arrived as finite numbers"),
        // Smaller by a hundredth: a bias, and for three values too.
        (
            Faulty { encoded: |x| x.iter().map(|x| x * 0.99).collect(), ..sound("int8") },
            "a bias of",
        ),
        // Not cut as it says; cut though it says that it is not.
        (Faulty { keeps: Some(Keeps::Unbiased), ..sound("ternary") }, "a bias of"),
        (
            Faulty { keeps: Some(Keeps::Contraction { delta: 0.5 }), ..sound("top-k") },
            "is lost, with delta",
        ),
        (
            Faulty { keeps: Some(Keeps::Contraction { delta: 1e-3 }), ..sound("ternary") },
            "is lost, with delta",
        ),
        (
            Faulty { keeps: Some(Keeps::Within { absolute: 1e-4 }), ..sound("threshold") },
            "is held beyond",
        ),
    ];
    for (faulty, law) in cases {
        let found = codec::compressor::check(&faulty).unwrap_err();
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}

/// Sound rounds with a fault in what seats are told, or in what they remember.
struct FaultyRounds {
    inner: Box<dyn Rounds>,
    told: fn(&mut Update),
    forgetful: bool,
}

impl Rounds for FaultyRounds {
    fn begin_seat(&self, shapes: &Shapes) -> Box<dyn Rounds> {
        let (inner, told) = (self.inner.begin_seat(shapes), self.told);
        Box::new(FaultyRounds { inner, told, forgetful: self.forgetful })
    }

    fn first(&mut self, update: Update, step: u64, world: u32) -> Update {
        self.inner.first(update, step, world)
    }

    fn next(&mut self, sum: Update) -> Next {
        let mut next = self.inner.next(sum);
        if let Next::Done(total) = &mut next {
            (self.told)(total);
        }
        next
    }

    fn save(&self) -> BTreeMap<String, Values> {
        self.inner.save()
    }

    fn restore(&mut self, state: BTreeMap<String, Values>) {
        self.inner.restore(if self.forgetful { BTreeMap::new() } else { state });
    }
}

fn halve(total: &mut Update, name: &str) {
    for block in total.blocks.iter_mut().filter(|block| block.name == name) {
        if let Body::Dense(values) = &mut block.body {
            scale(values, 0.5);
        }
    }
}

#[test]
fn faulty_rounds_are_found_out() {
    let sound = |name| FaultyRounds { inner: rounds(name, ""), told: |_| {}, forgetful: false };
    for name in ["low-rank", "random-k"] {
        codec::rounds::check(&sound(name)).unwrap();
        let cases = [
            // The mean of two seats instead of their sum.
            (FaultyRounds { told: |it| halve(it, "matrix"), ..sound(name) }, "did not arrive"),
            (FaultyRounds { told: |it| halve(it, "loss"), ..sound(name) }, "is no model's block"),
            (FaultyRounds { told: |it| it.blocks.truncate(2), ..sound(name) }, "other blocks"),
            (FaultyRounds { forgetful: true, ..sound(name) }, "what is restored"),
        ];
        for (faulty, law) in cases {
            let found = codec::rounds::check(&faulty).unwrap_err();
            assert!(found.contains(law), "{name}: expected '{law}', found '{found}'");
        }
    }
}
