//! The laws of codecs of several sums, on seats whose sums are made here.

use crate::conformance::{Verdict, ensure};
use starlings_codec::{Next, Rounds, Shapes};
use starlings_core::{Block, Body, Kind, Rng, Rows, Update, Values};

const STEPS: u64 = 25;

/// All laws.
///
/// # Errors
/// The first broken law.
pub fn check(rounds: &dyn Rounds) -> Verdict {
    for kind in [Kind::F32, Kind::F64] {
        for world in [1, 2, 3] {
            sums_back(rounds, kind, world).map_err(|law| format!("{world} of {kind:?}: {law}"))?;
        }
        begins_again(rounds, kind).map_err(|law| format!("{kind:?}: {law}"))?;
        not_finite(rounds, kind).map_err(|law| format!("{kind:?}: {law}"))?;
    }
    Ok(())
}

/// Blocks of a model: matrices, a vector, and an empty one.
#[must_use]
pub fn shapes() -> Shapes {
    let shapes = [("matrix", (12, 9)), ("wide", (3, 40)), ("vector", (7, 1)), ("empty", (0, 4))];
    shapes.into_iter().map(|(name, shape)| (name.to_string(), shape)).collect()
}

/// Seats of a flock.
#[must_use]
pub fn seats(rounds: &dyn Rounds, shapes: &Shapes, world: u32) -> Vec<Box<dyn Rounds>> {
    (0..world).map(|_| rounds.begin_seat(shapes)).collect()
}

/// One step of all seats: the total that they are told, and how many bytes each of them sent.
///
/// # Errors
/// Seats that do not fit together.
pub fn step(
    seats: &mut [Box<dyn Rounds>],
    updates: &[Update],
    step: u64,
) -> Result<(Update, usize), String> {
    let world = seats.len() as u32;
    let pairs = seats.iter_mut().zip(updates);
    let mut sent: Vec<Update> =
        pairs.map(|(seat, update)| seat.first(update.clone(), step, world)).collect();
    let mut bytes = 0;
    loop {
        bytes += sent[0].bytes();
        let mut sum = sent[0].clone();
        for other in &sent[1..] {
            sum.fold(other).map_err(|error| format!("seats do not fit together: {error}"))?;
        }
        let mut totals = Vec::new();
        sent.clear();
        for seat in &mut *seats {
            match seat.next(sum.clone()) {
                Next::Sum(next) => sent.push(next),
                Next::Done(total) => totals.push(total),
            }
        }
        ensure_one(sent.is_empty() || totals.is_empty(), "some seats are done and others not")?;
        if let Some(total) = totals.pop() {
            let same = totals.iter().all(|other| bits(other) == bits(&total));
            ensure_one(same, "seats are told different totals")?;
            return Ok((total, bytes));
        }
    }
}

fn ensure_one(holds: bool, law: &str) -> Verdict {
    if holds { Ok(()) } else { Err(law.to_string()) }
}

fn bits(update: &Update) -> Vec<(String, Vec<u64>)> {
    let bits = |block: &Block| match &block.body {
        Body::Dense(values) => wide(values).iter().map(|x| x.to_bits()).collect(),
        Body::Rows(rows) => wide(&rows.values).iter().map(|x| x.to_bits()).collect(),
        Body::Factors(factors) => factors.left.iter().map(|x| x.to_bits()).collect(),
    };
    update.blocks.iter().map(|block| (block.name.clone(), bits(block))).collect()
}

/// As f64.
#[must_use]
pub fn wide(values: &Values) -> Vec<f64> {
    match values {
        Values::F32(inner) => inner.iter().map(|&x| f64::from(x)).collect(),
        Values::F64(inner) => inner.clone(),
        Values::I64(inner) => inner.iter().map(|&x| x as f64).collect(),
    }
}

/// A contribution: all blocks of the model, statistics, integers and rows.
fn contribution(kind: Kind, seat: u64, step: u64) -> Update {
    let mut rng = Rng::named(1, "rounds", &[seat, step]);
    let mut numbers = |len: usize| {
        let numbers: Vec<f64> = (0..len).map(|_| rng.normal()).collect();
        match kind {
            Kind::F32 => Values::F32(numbers.iter().map(|&x| x as f32).collect()),
            _ => Values::F64(numbers),
        }
    };
    let dense = |name: &str, values| Block { name: name.to_string(), body: Body::Dense(values) };
    let rows = Rows { total: 50, width: 2, index: vec![seat as u32, 30], values: numbers(4) };
    let blocks = vec![
        Block::dense("loss", vec![0.5 + seat as f64, step as f64]),
        dense("matrix", numbers(12 * 9)),
        Block::counts("count", vec![seat as i64, i64::MAX / 5]),
        dense("vector", numbers(7)),
        dense("empty", numbers(0)),
        dense("wide", numbers(3 * 40)),
        Block::rows("table", rows),
    ];
    Update { blocks }
}

fn dense(update: &Update, name: &str) -> Result<Vec<f64>, String> {
    match update.get(name).map(|block| &block.body) {
        Some(Body::Dense(values)) => Ok(wide(values)),
        _ => Err(format!("'{name}' is gone")),
    }
}

fn sums_back(rounds: &dyn Rounds, kind: Kind, world: u32) -> Verdict {
    let shapes = shapes();
    let mut seats = seats(rounds, &shapes, world);
    let mut owed: Vec<(String, Vec<f64>)> = shapes
        .iter()
        .map(|(name, (rows, columns))| (name.clone(), vec![0.0; rows * columns]))
        .collect();
    for now in 0..STEPS {
        let given: Vec<Update> =
            (0..world).map(|seat| contribution(kind, seat.into(), now)).collect();
        let (total, _) = step(&mut seats, &given, now)?;
        let mut sum = given[0].clone();
        for other in &given[1..] {
            sum.fold(other).map_err(|error| error.to_string())?;
        }
        ensure!(total.blocks.len() == sum.blocks.len(), "other blocks came back");
        for (got, expected) in total.blocks.iter().zip(&sum.blocks) {
            ensure!(got.name == expected.name, "'{}' came back as '{}'", expected.name, got.name);
            ensure!(got.bytes() == expected.bytes(), "'{}' has another size", got.name);
            let whole = shapes.contains_key(&got.name);
            ensure!(whole || got == expected, "'{}' is no model's block and was changed", got.name);
        }
        for (name, owed) in &mut owed {
            let pairs = dense(&sum, name)?.into_iter().zip(dense(&total, name)?);
            owed.iter_mut().zip(pairs).for_each(|(owed, (given, told))| *owed += given - told);
        }
    }
    let tolerance = if kind == Kind::F32 { 1e-4 } else { 1e-10 };
    for (name, owed) in owed {
        let mut held = vec![0.0; owed.len()];
        for seat in &seats {
            let lost = seat.save().remove(&format!("residual/0/{name}"));
            let lost = lost.map_or(vec![0.0; owed.len()], |values| wide(&values));
            held.iter_mut().zip(lost).for_each(|(sum, lost)| *sum += lost);
        }
        for (at, (owed, held)) in owed.iter().zip(&held).enumerate() {
            ensure!(
                (owed - held).abs() <= tolerance,
                "'{name}' {at}: {held:e} is held, {owed:e} did not arrive"
            );
        }
    }
    Ok(())
}

/// Nothing changes before the total is told; what was saved goes on in the same way.
fn begins_again(rounds: &dyn Rounds, kind: Kind) -> Verdict {
    let shapes = shapes();
    let mut flock = seats(rounds, &shapes, 2);
    let given = |now| [contribution(kind, 0, now), contribution(kind, 1, now)];
    for now in 0..3 {
        step(&mut flock, &given(now), now)?;
    }
    let before: Vec<_> = flock.iter().map(|seat| seat.save()).collect();
    let broken_off: Vec<Update> =
        flock.iter_mut().zip(given(3)).map(|(seat, update)| seat.first(update, 3, 2)).collect();
    ensure!(
        flock.iter().map(|seat| seat.save()).eq(before.clone()),
        "the first sum changes the state"
    );
    let mut sum = broken_off[0].clone();
    sum.fold(&broken_off[1]).map_err(|error| error.to_string())?;
    let _ = flock[0].first(contribution(kind, 0, 3), 3, 2);
    if let Next::Sum(_) = flock[0].next(sum) {
        ensure!(flock[0].save() == before[0], "another sum changes the state");
    } else {
        flock[0].restore(before[0].clone());
    }
    let mut others = seats(rounds, &shapes, 2);
    others.iter_mut().zip(before).for_each(|(seat, state)| seat.restore(state));
    for now in 3..6 {
        let (a, _) = step(&mut flock, &given(now), now)?;
        let (b, _) = step(&mut others, &given(now), now)?;
        ensure!(bits(&a) == bits(&b), "what is restored goes on in another way");
    }
    let same = flock.iter().zip(&others).all(|(a, b)| a.save() == b.save());
    ensure!(same, "what is restored ends in another state");
    Ok(())
}

/// What is not finite shows in its block, and later steps are finite again.
fn not_finite(rounds: &dyn Rounds, kind: Kind) -> Verdict {
    for (name, odd, at) in [
        ("matrix", f64::NAN, 0),
        ("matrix", f64::INFINITY, 50),
        ("wide", f64::NEG_INFINITY, 119),
        ("vector", f64::NAN, 3),
    ] {
        let mut flock = seats(rounds, &shapes(), 2);
        step(&mut flock, &[contribution(kind, 0, 0), contribution(kind, 1, 0)], 0)?;
        let mut bad = contribution(kind, 0, 1);
        for block in bad.blocks.iter_mut().filter(|block| block.name == name) {
            match &mut block.body {
                Body::Dense(Values::F32(values)) => values[at] = odd as f32,
                Body::Dense(Values::F64(values)) => values[at] = odd,
                _ => {}
            }
        }
        let (total, _) = step(&mut flock, &[bad, contribution(kind, 1, 1)], 1)?;
        let shows = !dense(&total, name)?.iter().all(|x| x.is_finite());
        ensure!(shows, "{odd} in '{name}' arrived as finite numbers");
        for now in 2..5 {
            let given = [contribution(kind, 0, now), contribution(kind, 1, now)];
            let (total, _) = step(&mut flock, &given, now)?;
            for name in shapes().keys() {
                let finite = dense(&total, name)?.iter().all(|x| x.is_finite());
                ensure!(finite, "{odd} in '{name}' poisons later steps");
            }
        }
    }
    Ok(())
}
