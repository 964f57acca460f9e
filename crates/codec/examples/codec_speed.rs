//! How long codecs take for a number, beside the time that the bytes they save would take at 1 Gbit/s: a million f32 like
//! those of a gradient. Encoding and decoding together may take a quarter of it.
//!
//! `cargo run --release -p starlings-codec --example codec_speed`

#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use starlings_codec::{CODECS, Compressor, Into, Next, Part, Residuals, Rounds, Scheme, Shapes};
use starlings_codec::{residuals, sparse};
use starlings_core::{Block, Body, Params, Result, Rng, Update, Values};
use std::time::Instant;

const ROWS: usize = 1000;
const NUMBERS: usize = ROWS * 1000;
const REPEATS: usize = 21;
/// Nanoseconds of a byte at 1 Gbit/s.
const BYTE: f64 = 8.0;

fn main() -> Result<()> {
    let mut rng = Rng::named(1, "speed", &[]);
    let gradient: Vec<f32> = (0..NUMBERS).map(|_| (1e-3 * rng.normal()) as f32).collect();
    println!(
        "{NUMBERS} f32, best of {REPEATS}; nanoseconds a number, quarter of the saved time at 1 Gbit/s"
    );
    println!("codec        bytes  encode  decode    both  allowed  with feedback");
    for entry in CODECS {
        let given = match entry.name {
            // As many numbers as top-k sends: beyond 2.58 deviations.
            "threshold" => "threshold = 0.00258".parse().expect("a table"),
            _ => toml::Table::new(),
        };
        match (entry.build)(&Params::check(entry.name, &given, entry.params)?)? {
            Scheme::Numbers(codec) => {
                let (values, mut out) = (Values::F32(gradient.clone()), Vec::new());
                let encode = best(|| {
                    out.clear();
                    codec.encode(&values, 0, NUMBERS, &mut out);
                });
                let mut sum = values.clone();
                let decode = best(|| {
                    let taken = codec.decode(&out, &mut sum, 0..NUMBERS, Into::Add);
                    taken.expect("its own");
                });
                print_row(entry.name, out.len(), encode, decode, None);
            }
            Scheme::Contributions(compressor) => compress(entry.name, &*compressor, &gradient),
            Scheme::Rounds(rounds) => round(entry.name, &*rounds, &gradient),
            Scheme::Factors | Scheme::Auto(_) => {}
        }
    }
    exact_sparse(&gradient);
    Ok(())
}

fn compress(name: &str, compressor: &dyn Compressor, gradient: &[f32]) {
    let mut rng = Rng::named(2, "speed", &[]);
    let (mut out, mut sum) = (Vec::new(), vec![0.0; NUMBERS]);
    let encode = best(|| {
        out.clear();
        compressor.encode(gradient, &mut rng, &mut out);
    });
    let decode = best(|| compressor.decode(&out, &mut sum).expect("its own"));
    // There and back, so that what is held does not grow without end.
    let back = gradient.iter().map(|value| -value).collect();
    let (there_and_back, mut held) =
        ([Values::F32(gradient.to_vec()), Values::F32(back)], Residuals::default());
    let (mut fed, mut turn) = (Vec::new(), 0);
    let feedback = best(|| {
        fed.clear();
        turn = 1 - turn;
        let values = &there_and_back[turn];
        let part = Part { block: "gradient", from: 0, values, range: 0..NUMBERS };
        held.encode(compressor, part, &mut rng, &mut fed);
    });
    let mut wide = Values::F64(vec![0.0; NUMBERS]);
    residuals::decode(compressor, &fed, &mut wide, 0..NUMBERS, Into::Add).expect("its own");
    print_row(name, out.len(), encode, decode, Some(feedback));
}

/// One seat: all that it computes in a step.
fn round(name: &str, rounds: &dyn Rounds, gradient: &[f32]) {
    let shapes = Shapes::from([("gradient".to_string(), (ROWS, NUMBERS / ROWS))]);
    let mut seat = rounds.begin_seat(&shapes);
    let body = Body::Dense(Values::F32(gradient.to_vec()));
    let update = Update { blocks: vec![Block { name: "gradient".to_string(), body }] };
    let (mut step, mut bytes) = (0, 0);
    let copy = best(|| drop(std::hint::black_box(update.clone())));
    let both = best(|| {
        let mut sum = seat.first(update.clone(), step, 2);
        bytes = sum.bytes();
        while let Next::Sum(next) = seat.next(sum) {
            bytes += next.bytes();
            sum = next;
        }
        step += 1;
    });
    print_row(name, bytes, both - copy, 0.0, None);
}

/// The exact way for blocks that are mostly zeros: a hundredth is not.
fn exact_sparse(gradient: &[f32]) {
    let kept = gradient.iter().enumerate().map(|(at, x)| if at % 100 == 0 { *x } else { 0.0 });
    let (values, mut out) = (Values::F32(kept.collect()), Vec::new());
    let encode = best(|| {
        out.clear();
        sparse::encode(&values, 0..NUMBERS, &mut out);
    });
    let mut sum = Values::F32(gradient.to_vec());
    let decode = best(|| sparse::decode(&out, &mut sum, 0..NUMBERS, Into::Add).expect("its own"));
    print_row("auto, sparse", out.len(), encode, decode, None);
}

fn print_row(name: &str, bytes: usize, encode: f64, decode: f64, feedback: Option<f64>) {
    let a_number = bytes as f64 / NUMBERS as f64;
    let allowed = (4.0 - a_number) * BYTE / 4.0;
    let feedback = feedback.map_or(String::new(), |time| format!("{:.2}", time + decode));
    println!(
        "{name:12} {a_number:5.3}  {encode:6.2}  {decode:6.2}  {:6.2}  {allowed:7.2}  {feedback:>13}",
        encode + decode
    );
}

/// Nanoseconds a number: the least of all runs, for other programs only add to it.
fn best(mut run: impl FnMut()) -> f64 {
    let times = (0..REPEATS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e9 / NUMBERS as f64
    });
    times.fold(f64::INFINITY, f64::min)
}
