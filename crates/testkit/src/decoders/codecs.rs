//! The payloads of sums: what each codec of the catalogue reads, and the packets and models they travel in. The first
//! bytes of an input choose kind and length, the rest is what a peer sent.

use super::Decoder;
use starlings_codec::{
    BuildCodec, CODECS, Codec, Compressor, Into as Put, Scheme, residuals, sparse,
};
use starlings_core::{Block, Body, Entry, Kind, Params, Rng, Rows, Update, Values};
use starlings_engine::choices::Carriage;
use starlings_engine::exchange::cut::Part;
use starlings_engine::exchange::model_wire;
use starlings_engine::exchange::packet::{Address, Packer, Place};
use std::cell::LazyCell;
use std::sync::Arc;

macro_rules! codec {
    ($name:ident, $target:literal, $entry:literal) => {
        pub(super) const $name: Decoder = Decoder {
            name: $target,
            run: |bytes| {
                // Built once a thread: a fuzzer calls this millions of times.
        thread_local!(static SCHEME: LazyCell<Scheme> = LazyCell::new(|| scheme($entry)));
                SCHEME.with(|scheme| payload(scheme, bytes));
            },
            seeds: || payloads(&scheme($entry)),
        };
    };
}

codec!(HALF, "codec_half", "half");
codec!(INT8, "codec_int8", "int8");
codec!(ONE_BIT, "codec_one_bit", "one-bit");
codec!(RAW, "codec_raw", "raw");
codec!(TERNARY, "codec_ternary", "ternary");
codec!(THRESHOLD, "codec_threshold", "threshold");
codec!(TOP_K, "codec_top_k", "top-k");

pub(super) const SPARSE: Decoder = Decoder {
    name: "codec_sparse",
    run: sparse_payload,
    seeds: || {
        let encode = |(kind, length): (Kind, usize)| {
            let mut out = choice(kind, length);
            let mut values = numbers(kind, length);
            values.copy_at(0, &Values::zeros(kind, length / 2)).expect("a shorter one of its kind");
            sparse::encode(&values, 0..length, &mut out);
            out
        };
        CHOICES.map(encode).to_vec()
    },
};
pub(super) const PACKET: Decoder = Decoder { name: "packet", run: packet, seeds: packets };
pub(super) const MODEL_WIRE: Decoder =
    Decoder { name: "model_wire", run: model_of_a_peer, seeds: models };

const KINDS: [Kind; 3] = [Kind::F32, Kind::F64, Kind::I64];
const CHOICES: [(Kind, usize); 4] =
    [(Kind::F32, 40), (Kind::F64, 9), (Kind::I64, 3), (Kind::F32, 600)];

/// Rows of the table that row payloads are about.
const TOTAL: u32 = 100;
const WIDTH: u32 = 2;

fn scheme(name: &str) -> Scheme {
    let entry: &Entry<BuildCodec> = Entry::find("codec", CODECS, name).expect("in the catalogue");
    let params = Params::defaults(entry.params).expect("defaults are sound");
    (entry.build)(&params).expect("defaults build")
}

/// Kind and length as an input's first bytes say, and the rest.
fn chosen(bytes: &[u8]) -> Option<(Kind, usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<3>()?;
    let length = usize::from(u16::from_le_bytes([head[1], head[2]])) % 4096;
    Some((KINDS[usize::from(head[0]) % 3], length, rest))
}

fn choice(kind: Kind, length: usize) -> Vec<u8> {
    let number = KINDS.iter().position(|&known| known == kind).expect("all are listed") as u8;
    [&[number][..], &(length as u16).to_le_bytes()].concat()
}

/// Ordinary numbers, made cheaply: a fuzzer asks for them millions of times.
fn numbers(kind: Kind, length: usize) -> Values {
    let number = |at: usize| (at * 7 % 23) as i64 - 11;
    match kind {
        Kind::F32 => Values::F32((0..length).map(|at| number(at) as f32 / 8.0).collect()),
        Kind::F64 => Values::F64((0..length).map(|at| number(at) as f64 / 3.0).collect()),
        Kind::I64 => Values::I64((0..length).map(number).collect()),
    }
}

fn payload(scheme: &Scheme, bytes: &[u8]) {
    let Some((kind, length, rest)) = chosen(bytes) else { return };
    match scheme {
        Scheme::Numbers(codec) => numbers_payload(&**codec, (kind, length), rest),
        Scheme::Contributions(compressor) => parts_payload(&**compressor, length, rest),
        Scheme::Rounds(_) | Scheme::Factors | Scheme::Auto(_) => {
            panic!("this scheme has no bytes of its own")
        }
    }
}

fn numbers_payload(codec: &dyn Codec, (kind, length): (Kind, usize), bytes: &[u8]) {
    for how in [Put::Add, Put::Put] {
        let before = numbers(kind, length);
        let mut values = before.clone();
        if codec.decode(bytes, &mut values, 0..length, how).is_err() {
            assert_eq!(values, before, "refused, and yet something changed");
        }
    }
    if let Ok(rows) = codec.decode_rows(bytes, &Rows::none(kind, TOTAL, WIDTH)) {
        assert!(rows.is_sound());
    }
}

fn parts_payload(compressor: &dyn Compressor, length: usize, bytes: &[u8]) {
    let mut into = vec![1.0; length];
    if compressor.decode(bytes, &mut into).is_err() {
        assert!(into.iter().all(|&number| number == 1.0), "refused, and yet something changed");
    }
    for kind in [Kind::F32, Kind::F64] {
        let like = Rows::none(kind, TOTAL, WIDTH);
        if let Ok(rows) = residuals::decode_rows(compressor, bytes, &like) {
            assert!(rows.is_sound());
        }
    }
}

fn payloads(scheme: &Scheme) -> Vec<Vec<u8>> {
    let rows =
        Rows { total: TOTAL, width: WIDTH, index: vec![1, 7, 99], values: numbers(Kind::F32, 6) };
    let mut table = choice(Kind::F32, 6);
    let mut all: Vec<Vec<u8>> = Vec::new();
    for (kind, length) in CHOICES {
        let mut out = choice(kind, length);
        match (scheme, numbers(kind, length)) {
            (Scheme::Numbers(codec), values) => codec.encode(&values, 0, length, &mut out),
            (Scheme::Contributions(compressor), Values::F32(values)) => {
                compressor.encode(&values, &mut Rng::named(1, "noise", &[]), &mut out);
            }
            _ => continue,
        }
        all.push(out);
    }
    match scheme {
        Scheme::Numbers(codec) => codec.encode_rows(&rows, &mut table),
        Scheme::Contributions(compressor) => {
            let part = starlings_codec::RowsPart { block: "table", rows: &rows };
            let mut noise = Rng::named(1, "noise", &[]);
            residuals::Residuals::default().encode_rows(
                &**compressor,
                part,
                &mut noise,
                &mut table,
            );
        }
        _ => {}
    }
    all.push(table);
    all
}

fn sparse_payload(bytes: &[u8]) {
    let Some((kind, length, rest)) = chosen(bytes) else { return };
    for how in [Put::Add, Put::Put] {
        let before = numbers(kind, length);
        let mut values = before.clone();
        if sparse::decode(rest, &mut values, 0..length, how).is_err() {
            assert_eq!(values, before, "refused, and yet something changed");
        }
    }
}

/// A dense block, a matrix and a table, as a sum that packets are added to.
fn sum() -> Update {
    let dense = |name: &str, values| Block { name: name.into(), body: Body::Dense(values) };
    let table = Rows::none(Kind::F32, TOTAL, WIDTH);
    let blocks = vec![
        dense("dense", Values::zeros(Kind::F32, 32)),
        dense("matrix", Values::zeros(Kind::F64, 12)),
        dense("counts", Values::zeros(Kind::I64, 4)),
        Block { name: "table".into(), body: Body::Rows(table) },
    ];
    Update { blocks }
}

fn packers() -> Vec<Packer> {
    let shapes: starlings_codec::Shapes =
        [("dense", (4, 8)), ("matrix", (3, 4)), ("table", (100, 2))]
            .map(|(name, shape)| (name.to_owned(), shape))
            .into();
    let shapes = Arc::new(shapes);
    let address = Address { seed: 1, seat: 0, world: 2, everyone: true };
    let names = ["raw", "half", "top-k", "one-bit", "factors", "auto"];
    let carriage = |name| Carriage::from(scheme(name));
    names.map(|name| Packer::new(carriage(name), Arc::clone(&shapes), &address)).into()
}

fn part(block: usize) -> Part {
    let to = [32, 12, 4, TOTAL as usize][block];
    Part { block, from: 0, to, whole: block == 1 }
}

fn packet(bytes: &[u8]) {
    thread_local!(static PACKERS: LazyCell<Vec<Packer>> = LazyCell::new(packers));
    let Some((&[packer, block], mut rest)) = bytes.split_first_chunk::<2>() else { return };
    PACKERS.with(|packers| {
        let packer = &packers[usize::from(packer) % packers.len()];
        let mut sum = sum();
        // Packets of one chunk follow each other.
        while let Ok(after) = packer.unpack(&mut sum, &part(usize::from(block) % 4), rest) {
            assert!(after.len() < rest.len(), "a packet has a head at least");
            rest = after;
        }
    });
}

fn packets() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (number, packer) in packers().iter_mut().enumerate() {
        for block in 0..4 {
            let mut update = sum();
            if let Body::Dense(values) = &mut update.blocks[block].body {
                *values = numbers(values.kind(), values.len());
            }
            if let Body::Rows(rows) = &mut update.blocks[block].body {
                rows.index = vec![2, 50];
                rows.values = numbers(Kind::F32, 4);
            }
            let mut out = vec![number as u8, block as u8];
            let place = Place { count: 1, chunk: 0, total: false };
            packer.pack(&update, &part(block), place, &mut out);
            all.push(out);
        }
    }
    all
}

fn like() -> Update {
    let block = |name: &str, kind, length| Block {
        name: name.into(),
        body: Body::Dense(numbers(kind, length)),
    };
    Update { blocks: vec![block("a", Kind::F32, 7), block("b", Kind::F64, 3)] }
}

fn model_of_a_peer(bytes: &[u8]) {
    thread_local!(static CODECS_OF: LazyCell<Vec<Scheme>> =
        LazyCell::new(|| ["raw", "half"].map(scheme).into()));
    let Some((&first, rest)) = bytes.split_first() else { return };
    CODECS_OF.with(|schemes| {
        let Scheme::Numbers(codec) = &schemes[usize::from(first) % 2] else { return };
        if let Ok((words, weights)) = model_wire::read(rest, &like(), &**codec)
            && first.is_multiple_of(2)
        {
            assert_eq!(model_wire::write(words, &weights, &**codec), rest, "raw has one spelling");
        }
    });
}

fn models() -> Vec<Vec<u8>> {
    let write = |(number, name)| {
        let Scheme::Numbers(codec) = scheme(name) else { unreachable!("both encode numbers") };
        let words = std::array::from_fn(|at| at as u64);
        [vec![number], model_wire::write(words, &like(), &*codec)].concat()
    };
    [(0, "raw"), (1, "half")].map(write).to_vec()
}
