//! The laws of error feedback: nothing is lost, whatever the parts, the kind, the seat that saved it or the rows that
//! come and go.

use crate::conformance::{Verdict, ensure};
use starlings_codec::{Compressor, Into as Take, Keeps, Part, Residuals, RowsPart, residuals};
use starlings_core::{Block, Body, Kind, Rng, Rows, Update, Values};
use std::collections::BTreeMap;

const LEN: usize = 700;
const CUT: usize = 300;
const STEPS: u64 = 40;

pub(super) fn check(compressor: &dyn Compressor) -> Verdict {
    if compressor.feedback().is_none() {
        return keeps_nothing(compressor);
    }
    for kind in [Kind::F32, Kind::F64] {
        sums_back(compressor, kind).map_err(|law| format!("{kind:?}: {law}"))?;
        comes_back_the_same(compressor, kind).map_err(|law| format!("{kind:?}: {law}"))?;
        rows_wait(compressor, kind).map_err(|law| format!("rows of {kind:?}: {law}"))?;
    }
    seats_merge(compressor)?;
    recovers(compressor)?;
    within(compressor)
}

fn gradient(kind: Kind, step: u64) -> Values {
    let mut rng = Rng::named(1, "feedback", &[step]);
    let numbers: Vec<f64> = (0..LEN).map(|at| rng.normal() * 0.002 * (1 + at % 7) as f64).collect();
    match kind {
        Kind::F32 => Values::F32(numbers.iter().map(|&x| x as f32).collect()),
        _ => Values::F64(numbers),
    }
}

fn wide(values: &Values) -> Vec<f64> {
    match values {
        Values::F32(inner) => inner.iter().map(|&x| f64::from(x)).collect(),
        Values::F64(inner) => inner.clone(),
        Values::I64(inner) => inner.iter().map(|&x| x as f64).collect(),
    }
}

/// One step of a seat over parts that end at `cuts`: the bytes, and what arrives.
fn step(
    compressor: &dyn Compressor,
    held: &mut Residuals,
    values: &Values,
    (step, cuts): (u64, &[usize]),
) -> Result<(Vec<u8>, Vec<f64>), String> {
    let (mut from, mut all) = (0, Vec::new());
    let mut decoded = Values::zeros(Kind::F64, values.len());
    for &to in cuts {
        let mut bytes = Vec::new();
        let mut noise = Rng::named(2, "feedback", &[step, from as u64]);
        let part = Part { block: "layer/1", from, values, range: from..to };
        held.encode(compressor, part, &mut noise, &mut bytes);
        residuals::decode(compressor, &bytes, &mut decoded, from..to, Take::Put)
            .map_err(|why| why.0.to_string())?;
        all.extend(bytes);
        from = to;
    }
    Ok((all, wide(&decoded)))
}

/// What is held for the block, in its place.
fn held_numbers(state: &BTreeMap<String, Values>, what: &str) -> Vec<f64> {
    let mut all = vec![0.0; LEN];
    for (key, values) in state {
        let mut words = key.splitn(3, '/');
        if let (Some(first), Some(Ok(from))) = (words.next(), words.next().map(str::parse::<usize>))
            && first == what
        {
            all[from..].iter_mut().zip(wide(values)).for_each(|(sum, x)| *sum += x);
        }
    }
    all
}

/// Decoded and held are what was given, or with momentum correction the velocities of what was given.
fn sums_back(compressor: &dyn Compressor, kind: Kind) -> Verdict {
    let momentum = compressor.feedback().map_or(0.0, |feedback| feedback.momentum);
    let mut held = Residuals::default();
    let (mut velocity, mut rest) = (vec![0.0; LEN], vec![0.0; LEN]);
    for now in 0..STEPS {
        // Cut in another way half-way: what is held must be found all the same.
        let cuts: &[usize] = if now < STEPS / 2 { &[CUT, LEN] } else { &[CUT / 2, CUT * 2, LEN] };
        let values = gradient(kind, now);
        let (_, decoded) = step(compressor, &mut held, &values, (now, cuts))?;
        for (at, given) in wide(&values).into_iter().enumerate() {
            velocity[at] = momentum * velocity[at] + given;
            rest[at] += velocity[at] - decoded[at];
            if decoded[at] != 0.0 {
                velocity[at] = 0.0;
            }
        }
    }
    let tolerance = if kind == Kind::F32 { 1e-5 } else { 1e-12 };
    let state = held.save();
    let kept = held_numbers(&state, "residual");
    for (at, (kept, rest)) in kept.iter().zip(&rest).enumerate() {
        ensure!(
            (kept - rest).abs() <= tolerance,
            "number {at}: {kept:e} is held, {rest:e} did not arrive"
        );
    }
    let norm = kept.iter().map(|x| x * x).sum::<f64>().sqrt();
    ensure!((held.norm() - norm).abs() <= 1e-9 * norm, "the norm is {} for {norm}", held.norm());
    if momentum > 0.0 {
        let kept = held_numbers(&state, "velocity");
        let same = kept.iter().zip(&velocity).all(|(a, b)| (a - b).abs() <= tolerance);
        ensure!(same, "the velocities are not those of momentum factor masking");
    }
    Ok(())
}

fn comes_back_the_same(compressor: &dyn Compressor, kind: Kind) -> Verdict {
    let mut held = Residuals::default();
    for now in 0..5 {
        step(compressor, &mut held, &gradient(kind, now), (now, &[CUT, LEN]))?;
    }
    let mut other = Residuals::default();
    other.restore(held.save());
    ensure!(bits(&other.save()) == bits(&held.save()), "what is restored is not what was saved");
    for now in 5..8 {
        let values = gradient(kind, now);
        let a = step(compressor, &mut held, &values, (now, &[CUT, LEN]))?;
        let b = step(compressor, &mut other, &values, (now, &[CUT, LEN]))?;
        ensure!(a == b, "what is restored goes on in another way");
    }
    ensure!(bits(&other.save()) == bits(&held.save()), "what is restored ends in another state");
    Ok(())
}

fn bits(state: &BTreeMap<String, Values>) -> Vec<(String, Vec<u64>)> {
    let bits = |values: &Values| match values {
        Values::F32(inner) => inner.iter().map(|x| u64::from(x.to_bits())).collect(),
        Values::F64(inner) => inner.iter().map(|x| x.to_bits()).collect(),
        Values::I64(inner) => inner.iter().map(|&x| x as u64).collect(),
    };
    state.iter().map(|(key, values)| (key.clone(), bits(values))).collect()
}

/// Rows that are not in a batch wait for one that has them; a leaver's rows all arrive with its last update.
fn rows_wait(compressor: &dyn Compressor, kind: Kind) -> Verdict {
    let momentum = compressor.feedback().map_or(0.0, |feedback| feedback.momentum);
    let (total, width) = (20u32, 3u32);
    let mut held = Residuals::default();
    let mut owed = vec![0.0; (total * width) as usize];
    for now in 0..12u64 {
        let index: Vec<u32> = (0..total).filter(|row| u64::from(*row) % 4 != now % 4).collect();
        let len = index.len() * width as usize;
        let rows = Rows { total, width, index, values: gradient(kind, now).slice(0, len) };
        let mut bytes = Vec::new();
        let part = RowsPart { block: "table", rows: &rows };
        held.encode_rows(compressor, part, &mut Rng::named(3, "rows", &[now]), &mut bytes);
        let like = Rows::none(kind, total, width);
        let got = residuals::decode_rows(compressor, &bytes, &like);
        let got = got.map_err(|why| why.0.to_string())?;
        ensure!(got.index == rows.index, "other rows came back");
        let pairs = wide(&rows.values).into_iter().zip(wide(&got.values)).enumerate();
        for (at, (given, decoded)) in pairs {
            let (row, column) = (rows.index[at / width as usize], at % width as usize);
            owed[row as usize * width as usize + column] += given - decoded;
        }
        let mut other = Residuals::default();
        other.restore(held.save());
        ensure!(bits(&other.save()) == bits(&held.save()), "restored rows are not the saved ones");
        held = other;
    }
    let mut last = Update { blocks: vec![Block::rows("table", Rows::none(kind, total, width))] };
    held.flush(&mut last);
    ensure!(held.norm() == 0.0, "rows are held after a flush");
    let rows = last.rows("table").ok_or("the block is gone")?;
    ensure!(rows.is_sound(), "unsound rows after a flush");
    let mut flushed = vec![0.0; owed.len()];
    for (row, numbers) in rows.index.iter().zip(wide(&rows.values).chunks(width as usize)) {
        flushed[(row * width) as usize..][..numbers.len()].copy_from_slice(numbers);
    }
    // With momentum it is velocities that are owed, which `sums_back` follows.
    let same = flushed.iter().zip(&owed).all(|(a, b)| (a - b).abs() < 1e-6);
    ensure!(momentum > 0.0 || same, "what rows are owed is not what is flushed");
    Ok(())
}

/// A flock that resumes with one seat fewer, and a leaver's flush, lose nothing.
fn seats_merge(compressor: &dyn Compressor) -> Verdict {
    let mut seats = [Residuals::default(), Residuals::default()];
    for (number, seat) in seats.iter_mut().enumerate() {
        for now in 0..5 {
            let values = gradient(Kind::F64, 100 * number as u64 + now);
            let cuts: &[usize] = if number == 0 { &[CUT, LEN] } else { &[LEN] };
            step(compressor, seat, &values, (now, cuts))?;
        }
    }
    let both: Vec<f64> = held_numbers(&seats[0].save(), "residual")
        .into_iter()
        .zip(held_numbers(&seats[1].save(), "residual"))
        .map(|(a, b)| a + b)
        .collect();
    let [mut one, other] = seats;
    one.add(other.save());
    let merged = held_numbers(&one.save(), "residual");
    let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    ensure!(same(&merged, &both), "two seats do not merge to the sum of what they hold");
    let counts = Block::counts("count", vec![1; 3]);
    let mut last = Update { blocks: vec![counts.clone(), Block::dense("layer/1", vec![1.0; LEN])] };
    one.flush(&mut last);
    ensure!(one.norm() == 0.0 && last.blocks[0] == counts, "something is held after a flush");
    let flushed: Vec<f64> = last.f64("layer/1").iter().map(|x| x - 1.0).collect();
    ensure!(same(&flushed, &both), "what is flushed is not what was held");
    let mut elsewhere = other;
    let before = elsewhere.norm();
    elsewhere.flush(&mut Update { blocks: vec![Block::dense("another", vec![0.0; LEN])] });
    ensure!(elsewhere.norm() == before, "what finds no block is lost");
    Ok(())
}

/// A step that was not finite shows, and later ones are finite again.
fn recovers(compressor: &dyn Compressor) -> Verdict {
    let mut held = Residuals::default();
    let mut bad = gradient(Kind::F64, 0);
    if let Values::F64(values) = &mut bad {
        values[17] = f64::MAX;
        values[400] = f64::NAN;
    }
    let (_, decoded) = step(compressor, &mut held, &bad, (0, &[CUT, LEN]))?;
    let (front, back) = decoded.split_at(CUT);
    ensure!(!front.iter().all(|x| x.is_finite()), "a number beyond the range arrived as others");
    ensure!(!back.iter().all(|x| x.is_finite()), "NaN arrived as numbers");
    for now in 1..4 {
        let (_, decoded) =
            step(compressor, &mut held, &gradient(Kind::F64, now), (now, &[CUT, LEN]))?;
        ensure!(
            decoded.iter().all(|x| x.is_finite()),
            "a step that was not finite poisons later ones"
        );
    }
    ensure!(held.norm().is_finite(), "what is held is not finite");
    Ok(())
}

fn within(compressor: &dyn Compressor) -> Verdict {
    let Keeps::Within { absolute } = compressor.keeps() else { return Ok(()) };
    // It is velocities that are compressed: of such contributions none is beyond.
    let share = 1.0 - compressor.feedback().map_or(0.0, |feedback| feedback.momentum);
    let mut held = Residuals::default();
    let mut rng = Rng::named(4, "feedback", &[]);
    for now in 0..STEPS {
        let mut number = || (2.0 * rng.uniform() - 1.0) * absolute * share;
        let values = Values::F64((0..LEN).map(|_| number()).collect());
        step(compressor, &mut held, &values, (now, &[LEN]))?;
        let most = held_numbers(&held.save(), "residual")
            .into_iter()
            .fold(0.0, |m: f64, x| m.max(x.abs()));
        ensure!(most <= absolute * (1.0 + 1e-6), "{most:e} is held beyond {absolute:e}");
    }
    let mut held = Residuals::default();
    let large = Values::F64(vec![-10.5 * absolute; LEN]);
    step(compressor, &mut held, &large, (0, &[LEN]))?;
    for now in 1..12 {
        let before = held_numbers(&held.save(), "residual")[0].abs();
        step(compressor, &mut held, &Values::zeros(Kind::F64, LEN), (now, &[LEN]))?;
        let after = held_numbers(&held.save(), "residual")[0].abs();
        let shrinks =
            before <= absolute * (1.0 + 1e-6) || after <= before - absolute * (1.0 - 1e-6);
        ensure!(shrinks, "{before:e} became {after:e}, with {absolute:e}");
    }
    Ok(())
}

fn keeps_nothing(compressor: &dyn Compressor) -> Verdict {
    let mut held = Residuals::default();
    step(compressor, &mut held, &gradient(Kind::F32, 0), (0, &[CUT, LEN]))?;
    ensure!(held.norm() == 0.0 && held.save().is_empty(), "something is held without feedback");
    let mut untouched = Update { blocks: vec![Block::dense("layer/1", vec![1.0; LEN])] };
    held.flush(&mut untouched);
    ensure!(
        matches!(&untouched.blocks[0].body, Body::Dense(Values::F64(x)) if x.iter().all(|x| *x == 1.0)),
        "a flush of nothing"
    );
    Ok(())
}
