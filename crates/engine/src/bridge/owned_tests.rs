//! Owners: pushes and fetches at their periods and at no other time, warm starts, cuts, and groups that sum before they
//! push, for as many bytes as they say.

use super::*;
use crate::bridge::Grouped;
use crate::bridge::adder::{
    Adder, PATIENCE, Perch, assert_near, flock, form, model, perches, run_all, step,
};
use crate::choices::{Carriage, gate, raw, summing};
use crate::exchange::model_wire::all_weights;
use crate::exchange::ownership::Ownership;
use crate::exchange::served::{Office, Shard};
use crate::merge::MergeOptions;
use crate::rules::{Learned, Rule};
use crate::serve::{self, Service};
use starlings_consistency::{Blending, Cadence, Gate};
use starlings_core::{Rng, Role, Rows, Seat, Tensor, Values};
use starlings_learn::Learner;
use starlings_topology::Form;
use starlings_transport::Lane;
use std::sync::Barrier;

const LEN: usize = 12;
const PUSH: u8 = 1;
const PULL: u8 = 2;

/// Starts this seat's shard and gives a client of all.
fn serve(perch: &Perch, gate: Arc<dyn Gate>, pushers: Vec<Seat>) -> Client {
    serve_from(model(vec![0.0; LEN]), perch, gate, pushers)
}

fn serve_from(fresh: Model, perch: &Perch, gate: Arc<dyn Gate>, pushers: Vec<Seat>) -> Client {
    serve_by(Arc::new(Learned(Adder::shared())), fresh, perch, (gate, pushers))
}

fn serve_by(
    rule: Arc<dyn Rule>,
    fresh: Model,
    perch: &Perch,
    (gate, pushers): (Arc<dyn Gate>, Vec<Seat>),
) -> Client {
    let owners = Arc::new(Ownership::of(&fresh, perch.net.world()));
    let office = Office {
        rule: rule.clone(),
        gate: gate.clone(),
        blending: Arc::new(Blending::Plain),
        owners: owners.clone(),
        seat: perch.net.seat(),
        pushers,
    };
    let push = Carriage::Numbers(raw());
    let service = Service { push, pull: raw(), owners, gate, patience: PATIENCE };
    let shard = Shard::new(office, fresh, Step(0));
    // The thread ends with the net.
    drop(serve::start(perch.net.clone(), shard, service.clone(), Arc::default()).unwrap());
    let client = Client::new(perch.net.clone(), service, 1);
    client.seeing_its_own(rule)
}

fn all(world: u32) -> Vec<Seat> {
    (0..world).map(Seat).collect()
}

fn owned(perch: &Perch, gate: Arc<dyn Gate>, cadence: Option<Cadence>) -> Owned {
    let world = perch.net.world();
    let echo = cadence.map(|_| Adder::shared());
    let skips = gate.quorum(world) < world;
    let client = serve(perch, gate, all(world));
    let habits = Habits { echo, cadence, seat: perch.net.seat(), skips, repeats: false };
    Owned::new(client, perch.exact(3), habits, perch.net.clone())
}

fn change(seat: usize, number: u64) -> Vec<f64> {
    let mut rng = Rng::named(1, "change", &[seat as u64, number]);
    (0..LEN).map(|_| rng.normal()).collect()
}

/// A seat of a group of two, which pushes and fetches with a cadence if there is one.
fn grouped(perch: &Perch, gate: Arc<dyn Gate>, cadence: Option<Cadence>) -> Grouped {
    let first = perch.seat() as u32 / 2 * 2;
    let group = vec![Seat(first), Seat(first + 1)];
    let firsts: Vec<Seat> = all(perch.net.world()).into_iter().step_by(2).collect();
    let pushers = firsts.len() as u32;
    let skips = gate.quorum(pushers) < pushers;
    let client = serve(perch, gate, firsts);
    let client = (perch.seat() as u32 == first).then_some(client);
    let mergers =
        [perch.exact_among(5, group.clone()), perch.exact_among(6, group), perch.exact(3)];
    let echo = cadence.map(|_| Adder::shared());
    let habits = Habits { echo, cadence, seat: Seat(first), skips, repeats: false };
    Grouped::new(client, mergers, habits, perch.net.clone())
}

/// A model of one table.
fn table(name: &str, rows: u32, width: usize) -> Model {
    let mut model = Model::new();
    let shape = [rows as usize, width];
    model.set(name, Tensor::of(&shape, vec![0.0; shape[0] * width], Role::Weight));
    model
}

/// A seat of groups as the catalogue builds them, around owners of a table.
fn grouped_around(fresh: Model, perch: &Perch, (inner, size): (&str, u32)) -> Grouped {
    let (seat, world) = (perch.net.seat().0, perch.net.world());
    let first = seat / size * size;
    let group: Vec<Seat> = (first..(first + size).min(world)).map(Seat).collect();
    let firsts = (0..world).step_by(size as usize).map(Seat).collect();
    let client = serve_from(fresh, perch, gate("bsp", "").unwrap(), firsts);
    let client = (seat == first).then_some(client);
    let among = |kind| {
        let inner = summing(inner, "").unwrap();
        let options = MergeOptions::exact(kind, &perch.net, inner, PATIENCE);
        Merger::new(perch.net.clone(), MergeOptions { group: group.clone(), ..options })
    };
    let habits =
        Habits { echo: None, cadence: None, seat: Seat(first), skips: false, repeats: false };
    Grouped::new(client, [among(5), among(6), perch.exact(3)], habits, perch.net.clone())
}

/// What each seat sends in so many steps of groups around owners of a table.
fn bytes_of_steps(fresh: &Model, world: u32, way: (&str, u32), steps: u64) -> Vec<u64> {
    let seats = perches(world);
    run_all(&seats, |perch| {
        let mut grouped = grouped_around(fresh.clone(), &perch, way);
        let mut model = fresh.clone();
        for number in 0..steps {
            grouped.open(Step(number), &Needs::All, Asks::default(), &mut model).unwrap();
            let HandedIn { moment, .. } = step(number, vec![]);
            let handed = HandedIn::new(moment, 2, vec![all_weights(fresh)]);
            grouped.finish(handed, &mut model).unwrap();
        }
    });
    seats.iter().map(|perch| perch.net.bytes_sent()).collect()
}

/// What each seat sends in a step for the numbers of a table of so many rows and columns. Heads are as long for twice the
/// columns, so it is what those take more.
fn bytes_for_numbers(name: &str, shape: (u32, usize), world: u32, way: (&str, u32)) -> Vec<f64> {
    let steps = 4;
    let [once, twice] = [1, 2]
        .map(|times| bytes_of_steps(&table(name, shape.0, times * shape.1), world, way, steps));
    once.iter().zip(twice).map(|(once, twice)| (twice - once) as f64 / steps as f64).collect()
}

/// Walks as a worker does, to the end; gives the steps that it took and its model.
fn walk(perch: &Perch, exchange: &mut dyn Exchange, steps: u64) -> (Vec<u64>, Vec<f64>) {
    walk_after(perch, exchange, steps, |_| {})
}

/// As [`walk`], and calls `before` with each step that it is about to open.
fn walk_after(
    perch: &Perch,
    exchange: &mut dyn Exchange,
    steps: u64,
    before: impl Fn(u64),
) -> (Vec<u64>, Vec<f64>) {
    let (mut taken, mut model, mut number) = (Vec::new(), model(vec![0.0; LEN]), 0);
    while number < steps {
        before(number);
        let asks = Asks::default();
        let agreed = exchange.open(Step(number), &Needs::All, asks, &mut model).unwrap();
        if let Some(later) = agreed.skip_to {
            number = later.0;
            continue;
        }
        exchange.finish(step(number, change(perch.seat(), number)), &mut model).unwrap();
        taken.push(number);
        number += 1;
    }
    exchange.close(Step(number)).unwrap();
    exchange.cut(Step(number), &mut model).unwrap();
    exchange.sum(vec![]).unwrap();
    (taken, model.f64("x").to_vec())
}

/// The sum of the changes that workers made in these steps.
fn total(taken: &[Vec<u64>]) -> Vec<f64> {
    let mut total = vec![0.0; LEN];
    for (seat, numbers) in taken.iter().enumerate() {
        for &number in numbers {
            total.iter_mut().zip(change(seat, number)).for_each(|(to, adds)| *to += adds);
        }
    }
    total
}

#[test]
fn a_worker_with_a_cadence_pushes_and_fetches_at_its_periods_and_loses_nothing() {
    for (fetch, push, steps, pushes, fetches) in
        [(1, 1, 6, 6, 6), (3, 2, 12, 6, 4), (5, 4, 11, 3, 3)]
    {
        let seats = perches(2);
        let models = run_all(&seats, |perch| {
            let cadence = Cadence { fetch, push, warm: 0 };
            let mut owned = owned(&perch, gate("async", "").unwrap(), Some(cadence));
            walk(&perch, &mut owned, steps)
        });
        let (taken, models): (Vec<_>, Vec<_>) = models.into_iter().unzip();
        for (perch, model) in seats.iter().zip(models) {
            assert_near(&model, &total(&taken), 1e-12);
            assert_eq!(perch.sent(Lane::Request, PUSH), pushes, "fetch {fetch} push {push}");
            // The last pull is that of the cut.
            assert_eq!(perch.sent(Lane::Request, PULL), fetches + 1, "fetch {fetch} push {push}");
        }
    }
}

#[test]
fn a_warm_start_ends_whatever_the_periods() {
    for (fetch, push, warm) in [(1, 1, 4), (3, 5, 4), (5, 3, 10), (4, 9, 7), (2, 2, 99)] {
        let runs = flock(3, |perch| {
            let cadence = Cadence { fetch, push, warm };
            let mut owned = owned(&perch, gate("async", "").unwrap(), Some(cadence));
            walk(&perch, &mut owned, 12)
        });
        let (taken, models): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        assert_eq!(taken[0], (0..12).collect::<Vec<_>>(), "one replica makes all steps");
        assert_eq!(taken[1], (warm..12).collect::<Vec<_>>(), "the others begin when it is warm");
        models.iter().for_each(|model| assert_near(model, &total(&taken), 1e-12));
    }
}

#[test]
fn replicas_that_begin_warm_see_the_whole_warm_up() {
    let seen = flock(2, |perch| {
        let cadence = Cadence { fetch: 4, push: 3, warm: 5 };
        let mut owned = owned(&perch, gate("async", "").unwrap(), Some(cadence));
        let mut read = model(vec![0.0; LEN]);
        if perch.seat() == 0 {
            for number in 0..5 {
                owned.open(Step(number), &Needs::All, Asks::default(), &mut read).unwrap();
                owned.finish(step(number, change(0, number)), &mut read).unwrap();
            }
        } else {
            owned.open(Step(5), &Needs::All, Asks::default(), &mut read).unwrap();
        }
        owned.sum(vec![]).unwrap();
        read.f64("x").to_vec()
    });
    assert_near(&seen[1], &total(&[(0..5).collect()]), 1e-12);
}

#[test]
fn a_cut_does_not_wait_for_steps_that_were_skipped() {
    let models = flock(2, |perch| {
        let cadence = Cadence { fetch: 1, push: 1, warm: 3 };
        let mut owned = owned(&perch, gate("async", "").unwrap(), Some(cadence));
        let mut model = model(vec![0.0; LEN]);
        if perch.seat() == 0 {
            for number in 0..3 {
                owned.open(Step(number), &Needs::All, Asks::default(), &mut model).unwrap();
                owned.finish(step(number, change(0, number)), &mut model).unwrap();
            }
        }
        // Seat 1 has pushed nothing when the cut comes.
        assert_eq!(owned.cut(Step(3), &mut model).unwrap(), Step(3));
        model.f64("x").to_vec()
    });
    models.iter().for_each(|model| assert_near(model, &total(&[(0..3).collect()]), 1e-12));
}

#[test]
fn a_flock_that_is_told_to_stop_does_not_wait_until_it_is_warm() {
    let stopped = flock(3, |perch| {
        let cadence = Cadence { fetch: 5, push: 5, warm: 10 };
        let mut owned = owned(&perch, gate("async", "").unwrap(), Some(cadence));
        let (mut model, mut number) = (model(vec![0.0; LEN]), 0);
        let agreed = loop {
            let asks = Asks { stop: perch.seat() == 0 && number >= 2, ..Asks::default() };
            let agreed = owned.open(Step(number), &Needs::All, asks, &mut model).unwrap();
            if agreed.stop || number > 10 {
                break agreed;
            }
            match agreed.skip_to {
                Some(later) => number = later.0,
                None => {
                    owned.finish(step(number, change(0, number)), &mut model).unwrap();
                    number += 1;
                }
            }
        };
        assert!(agreed.stop);
        owned.cut(Step(number), &mut model).unwrap();
        (number, model.f64("x").to_vec())
    });
    let steps: Vec<u64> = stopped.iter().map(|(number, _)| *number).collect();
    assert_eq!(steps, [2, 10, 10]);
    stopped.iter().for_each(|(_, model)| assert_near(model, &total(&[vec![0, 1]]), 1e-12));
}

#[test]
fn under_every_gate_all_end_with_every_change() {
    let gates = [
        ("bsp", ""),
        ("async", ""),
        ("ssp", "bound = 2\npush = true"),
        ("ssp", "bound = 2\npush = false"),
    ];
    for (name, parameters) in gates {
        let runs = flock(3, |perch| {
            let mut owned = owned(&perch, gate(name, parameters).unwrap(), None);
            walk(&perch, &mut owned, 8)
        });
        let (taken, models): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        models.iter().for_each(|model| assert_near(model, &total(&taken), 1e-12));
    }
}

/// Takes steps in which everyone counts its own in the row `at`, and asserts that each is seen at once.
fn counts_its_own(perch: &Perch, exchange: &mut dyn Exchange, (at, adds): (usize, f64)) {
    let (mut model, steps) = (model(vec![0.0; LEN]), 60);
    for number in 0..steps {
        exchange.open(Step(number), &Needs::All, Asks::default(), &mut model).unwrap();
        let seen = model.f64("x")[at];
        assert_eq!(seen, number as f64 * adds, "{number} steps of seat {}", perch.seat());
        let mut change = vec![0.0; LEN];
        change[at] = 1.0;
        exchange.finish(step(number, change), &mut model).unwrap();
    }
    exchange.close(Step(steps)).unwrap();
    exchange.sum(vec![]).unwrap();
}

#[test]
fn a_worker_and_a_group_always_see_their_own_steps() {
    for parameters in ["bound = 3\npush = true", "bound = 3\npush = false", "bound = 0"] {
        let stale = || gate("ssp", parameters).unwrap();
        for world in [1, 3] {
            flock(world, |perch| {
                let mut owned = owned(&perch, stale(), None);
                counts_its_own(&perch, &mut owned, (perch.seat(), 1.0));
            });
        }
        for world in [2, 4] {
            flock(world, |perch| {
                let mut grouped = grouped(&perch, stale(), None);
                counts_its_own(&perch, &mut grouped, (perch.seat() / 2, 2.0));
            });
        }
    }
}

/// Adds what is pushed, divided by the rows of its step.
struct ByRows;

impl Rule for ByRows {
    fn prepare(&self, _: &mut Model) {}

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<()> {
        let mut update = update.clone();
        for block in &mut update.blocks {
            let Body::Rows(Rows { values: Values::F64(numbers), .. }) = &mut block.body else {
                panic!("owners are sent rows of f64");
            };
            numbers.iter_mut().for_each(|number| *number /= moment.rows as f64);
        }
        Adder.apply(model, &update, moment).map(|_| ())
    }
}

#[test]
fn what_accrues_is_divided_by_the_rows_of_each_step() {
    let rows_of = |number: u64| [4, 4, 1, 4, 4, 2, 2, 3][number as usize % 8];
    let mut wanted = vec![0.0; LEN];
    for number in 0..20 {
        let adds = change(0, number);
        wanted.iter_mut().zip(adds).for_each(|(to, adds)| *to += adds / rows_of(number) as f64);
    }
    for push in [1, 2, 5, 100] {
        let models = flock(1, |perch| {
            let fresh = model(vec![0.0; LEN]);
            let client = serve_by(
                Arc::new(ByRows),
                fresh.clone(),
                &perch,
                (gate("async", "").unwrap(), all(1)),
            );
            let cadence = Some(Cadence { fetch: 3, push, warm: 0 });
            let echo = Some(Adder::shared());
            let habits = Habits { echo, cadence, seat: Seat(0), skips: false, repeats: false };
            let mut owned = Owned::new(client, perch.exact(3), habits, perch.net.clone());
            let mut model = fresh;
            for number in 0..20 {
                owned.open(Step(number), &Needs::All, Asks::default(), &mut model).unwrap();
                let HandedIn { moment, update, .. } = step(number, change(0, number));
                let moment = Moment { rows: rows_of(number), ..moment };
                owned.finish(HandedIn::new(moment, 2, vec![update]), &mut model).unwrap();
            }
            owned.cut(Step(20), &mut model).unwrap();
            model.f64("x").to_vec()
        });
        assert_near(&models[0], &wanted, 1e-12);
    }
}

#[test]
fn blocks_that_leave_early_are_part_of_their_step() {
    let models = flock(2, |perch| {
        let mut owned = owned(&perch, gate("bsp", "").unwrap(), None);
        let mut model = model(vec![0.0; LEN]);
        for number in 0..4 {
            owned.open(Step(number), &Needs::All, Asks::default(), &mut model).unwrap();
            let HandedIn { moment, update, .. } = step(number, change(perch.seat(), number));
            let mut sink = owned.stream(&moment).unwrap();
            // A statistic stays; the block is taken.
            let statistic = Block::dense("loss", vec![1.0, 2.0]);
            assert_eq!(sink.take(statistic.clone()), Some(statistic.clone()));
            assert_eq!(sink.take(update.blocks[0].clone()), None);
            drop(sink);
            let rest = Update { blocks: vec![statistic] };
            let outcome = owned.finish(HandedIn::new(moment, 2, vec![rest]), &mut model).unwrap();
            assert_eq!(outcome.objective, Some(0.5));
        }
        owned.cut(Step(4), &mut model).unwrap();
        model.f64("x").to_vec()
    });
    let taken = vec![(0..4).collect::<Vec<u64>>(); 2];
    models.iter().for_each(|model| assert_near(model, &total(&taken), 1e-12));
}

#[test]
fn groups_around_owners_come_to_what_owners_come_to() {
    for (name, parameters) in [("bsp", ""), ("async", ""), ("ssp", "bound = 1\npush = true")] {
        let apart = flock(4, |perch| {
            let mut owned = owned(&perch, gate(name, parameters).unwrap(), None);
            walk(&perch, &mut owned, 6).1
        });
        let seats = perches(4);
        let together = run_all(&seats, |perch| {
            let mut grouped = grouped(&perch, gate(name, parameters).unwrap(), None);
            walk(&perch, &mut grouped, 6).1
        });
        for model in &together {
            assert_near(model, &apart[0], 1e-12);
        }
        // Only the first of a group talks to owners: to three other seats, once a step.
        let pushes: Vec<usize> =
            seats.iter().map(|perch| perch.sent(Lane::Request, PUSH)).collect();
        assert_eq!(pushes, [18, 0, 18, 0], "{name}");
    }
}

#[test]
fn groups_send_as_many_bytes_as_is_said() {
    for world in [4, 5, 6] {
        // A table of which every seat owns one row.
        let evenly = |name: &String| {
            let owners = Ownership::of(&table(name, world, 1), world);
            (0..world).all(|seat| owners.rows(name, Seat(seat)).len() == 1)
        };
        let name = (0..10_000).map(|it| format!("x{it}")).find(evenly).unwrap();
        for (inner, size) in
            [("ring", 2), ("ring", 3), ("tree", 3), ("halving-doubling", 4), ("star", 2)]
        {
            let sent = bytes_for_numbers(&name, (world, 1000), world, (inner, size));
            let given = format!("inner = '{inner}'\ngroup = {size}");
            let Form::Groups(groups) = form("grouped", &given) else { panic!("groups") };
            let cost = groups.cost(world, u64::from(world) * 8000);
            let counted = [sent.iter().copied().fold(0.0, f64::max), sent.iter().sum()];
            // Chunks are cut between whole numbers.
            let near = |said: f64, sent: f64| (said - sent).abs() <= 1e-3 * sent;
            let all_near =
                near(cost.bytes_sent_max, counted[0]) && near(cost.bytes_sent_total, counted[1]);
            assert!(all_near, "{world} seats in {inner}s of {size}: {cost:?}, not {sent:?}");
        }
    }
}

#[test]
fn owners_of_unequal_shares_send_about_as_many_bytes_as_is_said() {
    let world = 6;
    let Form::Groups(groups) = form("grouped", "group = 2") else { panic!("groups") };
    let sent = bytes_for_numbers("x", (1000, 16), world, ("ring", 2));
    let cost = groups.cost(world, 1000 * 16 * 8);
    let within = |said: f64, sent: f64, part: f64| (said - sent).abs() <= part * said;
    let most = sent.iter().copied().fold(0.0, f64::max);
    assert!(within(cost.bytes_sent_total, sent.iter().sum(), 0.01), "{cost:?}, not {sent:?}");
    assert!(within(cost.bytes_sent_max, most, 0.02), "{cost:?}, not {sent:?}");
}

#[test]
fn a_group_with_a_cadence_pushes_and_fetches_at_its_periods_and_loses_nothing() {
    let mut bytes = Vec::new();
    for (fetch, push, pushes, fetches) in [(1, 1, 12, 12), (3, 2, 6, 4), (5, 4, 3, 3)] {
        let seats = perches(4);
        let cadence = Some(Cadence { fetch, push, warm: 0 });
        let runs = run_all(&seats, |perch| {
            let mut grouped = grouped(&perch, gate("async", "").unwrap(), cadence);
            let (taken, model) = walk(&perch, &mut grouped, 12);
            (taken, model, grouped.bytes_raw())
        });
        let taken: Vec<Vec<u64>> = runs.iter().map(|(taken, ..)| taken.clone()).collect();
        for (perch, (_, model, _)) in seats.iter().zip(&runs) {
            assert_near(model, &total(&taken), 1e-12);
            // Only the first of a group talks to owners, to three others; the last pull is that of the cut.
            let talks = if perch.seat().is_multiple_of(2) { 3 } else { 0 };
            let sent = [PUSH, PULL].map(|kind| perch.sent(Lane::Request, kind));
            assert_eq!(sent, [talks * pushes, talks * (fetches + 1)], "fetch {fetch} push {push}");
        }
        bytes.push(runs.iter().map(|(.., bytes)| bytes).sum::<u64>());
    }
    assert!(bytes.is_sorted_by(|more, less| less < more), "{bytes:?} for longer periods");
}

#[test]
fn one_group_warms_the_model_up_and_the_others_begin_from_there() {
    let runs = flock(4, |perch| {
        let cadence = Some(Cadence { fetch: 3, push: 5, warm: 7 });
        let mut grouped = grouped(&perch, gate("async", "").unwrap(), cadence);
        walk(&perch, &mut grouped, 12)
    });
    let (taken, models): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let (whole, late): (Vec<u64>, Vec<u64>) = ((0..12).collect(), (7..12).collect());
    assert_eq!(taken, [whole.clone(), whole, late.clone(), late]);
    models.iter().for_each(|model| assert_near(model, &total(&taken), 1e-12));
}

#[test]
fn a_slow_group_is_skipped_where_others_are_not_waited_for() {
    let together = Barrier::new(6);
    let runs = flock(6, |perch| {
        let mut grouped = grouped(&perch, gate("backup-workers", "spare = 1").unwrap(), None);
        // The last group begins when the others have done six steps.
        let meets_at = if perch.seat() < 4 { 6 } else { 0 };
        walk_after(&perch, &mut grouped, 10, |number| {
            if number == meets_at {
                together.wait();
            }
        })
    });
    let (taken, models): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    assert_eq!(taken[0][..6], [0, 1, 2, 3, 4, 5]);
    assert_eq!(taken[4], taken[5], "a group goes together");
    assert!(taken[4].iter().all(|&number| number >= 6), "{:?} were taken late", taken[4]);
    assert!(models.iter().all(|model| model == &models[0]), "all end with the same model");
}
