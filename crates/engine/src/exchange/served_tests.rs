//! Tests of one shard, event by event: who waits for what, what counts, and what a temper is told. Flocks of workers
//! are simulated elsewhere.

use super::*;
use crate::bridge::adder::blending;
use crate::choices::{gate, rule};
use starlings_consistency::{Late, Temper};
use starlings_core::{Role, Rows, Tensor, Values};
use std::sync::Mutex;

const TABLE: &str = "table";
const MORE: &str = "more";
const ROWS: u32 = 6;

fn shard_of(gate: Arc<dyn Gate>, blending: Blending, pushers: u32) -> Shard {
    let mut model = Model::new();
    let zeros = vec![0.0; ROWS as usize];
    model.set(TABLE, Tensor::of(&[ROWS as usize, 1], zeros.clone(), Role::Weight));
    model.set(MORE, Tensor::of(&[ROWS as usize, 1], zeros, Role::Weight));
    let office = Office {
        rule: rule("sum", "").unwrap(),
        gate,
        blending: Arc::new(blending),
        owners: Arc::new(Ownership::of(&model, 1)),
        seat: Seat(0),
        pushers: (0..pushers).map(Seat).collect(),
    };
    Shard::new(office, model, Step(0))
}

fn shard(name: &str, parameters: &str, pushers: u32) -> Shard {
    shard_of(gate(name, parameters).unwrap(), Blending::Plain, pushers)
}

fn rows(index: &[u32], number: f64) -> Update {
    let values = Values::F64(vec![number; index.len()]);
    Update {
        blocks: vec![Block::rows(
            TABLE,
            Rows { total: ROWS, width: 1, index: index.to_vec(), values },
        )],
    }
}

fn push_part(from: u32, step: u64, update: Update, last: bool) -> Event {
    let moment = Moment { step: Step(step), pass: 0, seed: 0, rows: 8 };
    Event::Push { from: Seat(from), moment, update, last }
}

/// Seat s adds 10 to the power of s to the first row.
fn push(from: u32, step: u64) -> Event {
    push_part(from, step, rows(&[0], 10f64.powi(from as i32)), true)
}

fn pull_asking(from: u32, step: u64, asks: Asks) -> Event {
    let wanted = [(TABLE.to_string(), WantedRows::Owned)].into();
    Event::Pull { from: Seat(from), step: Step(step), wanted, asks, due: Vec::new() }
}

fn pull(from: u32, step: u64) -> Event {
    pull_asking(from, step, Asks::default())
}

fn pull_due(from: u32, step: u64, due: &[u64]) -> Event {
    let wanted = [(TABLE.to_string(), WantedRows::Owned)].into();
    let (asks, due) = (Asks::default(), due.to_vec());
    Event::Pull { from: Seat(from), step: Step(step), wanted, asks, due }
}

/// What a shard does when something happens.
fn on(shard: &mut Shard, event: Event) -> Vec<Command> {
    let mut commands = Vec::new();
    shard.on(event, &mut commands);
    commands
}

/// Whom it answers, and with which first row.
fn answers(shard: &mut Shard, event: Event) -> Vec<(u32, f64)> {
    let told = |command| match command {
        Command::Answer { to, rows, .. } => Some((to.0, first(&rows))),
        Command::Fresh { .. } | Command::Mirror { .. } | Command::Mirrored { .. } => None,
        Command::Fail(why) => panic!("{why}"),
    };
    on(shard, event).into_iter().filter_map(told).collect()
}

fn first(blocks: &[Block]) -> f64 {
    match &blocks[0].body {
        Body::Rows(rows) => rows.values.as_f64().unwrap()[0],
        other => panic!("an answer of {other:?}"),
    }
}

fn fails(shard: &mut Shard, event: Event) -> bool {
    on(shard, event).iter().any(|command| matches!(command, Command::Fail(_)))
}

#[test]
fn under_a_barrier_nobody_reads_before_all_have_pushed() {
    let mut shard = shard("bsp", "", 3);
    assert_eq!(answers(&mut shard, pull(0, 0)), [(0, 0.0)]);
    assert_eq!(answers(&mut shard, push(2, 0)), []);
    assert_eq!(answers(&mut shard, push(0, 0)), []);
    assert_eq!(answers(&mut shard, pull(0, 1)), []);
    assert_eq!(shard.model().f64(TABLE)[0], 0.0, "nothing is applied before all are here");
    assert_eq!(answers(&mut shard, push(1, 0)), [(0, 111.0)]);
}

#[test]
fn a_dead_replica_stops_a_barrier_and_nothing_else() {
    // Seat 1 pushes once and never again.
    let alive = |name: &str, parameters: &str| {
        let mut shard = shard(name, parameters, 2);
        (0..2).for_each(|seat| drop(on(&mut shard, pull(seat, 0))));
        on(&mut shard, push(1, 0));
        let mut step = 0;
        while step < 50 {
            on(&mut shard, push(0, step));
            step += 1;
            if answers(&mut shard, pull(0, step)).is_empty() {
                break;
            }
        }
        step
    };
    assert_eq!(alive("async", ""), 50, "Downpour goes on with a dead replica");
    assert_eq!(alive("bsp", ""), 2);
    assert_eq!(alive("ssp", "bound = 3\npush = false"), 5);
    assert_eq!(alive("backup-workers", "spare = 1"), 50);
}

#[test]
fn parts_of_a_contribution_count_once() {
    let mut shard = shard("bsp", "", 2);
    let mut more = rows(&[1, 2], 1.0);
    more.blocks[0].name = MORE.to_string();
    let both = Update { blocks: [rows(&[0], 10.0).blocks, more.blocks.clone()].concat() };
    assert!(on(&mut shard, push_part(0, 0, rows(&[0], 1.0), false)).is_empty());
    on(&mut shard, push_part(1, 0, both, true));
    assert_eq!(shard.model().f64(TABLE)[0], 0.0, "half a contribution is none");
    on(&mut shard, push_part(0, 0, more, true));
    assert_eq!(shard.model().f64(TABLE)[..2], [11.0, 0.0]);
    assert_eq!(shard.model().f64(MORE)[..4], [0.0, 2.0, 2.0, 0.0]);

    let mut shard = self::shard("async", "", 2);
    on(&mut shard, push_part(0, 0, rows(&[0], 1.0), false));
    assert_eq!(shard.model().f64(TABLE)[0], 1.0, "parts are applied as they come");
    assert_eq!(answers(&mut shard, pull_due(1, 0, &[1, 0])), [], "but the step is not complete");
    assert_eq!(answers(&mut shard, push_part(0, 0, rows(&[1], 1.0), true)), [(1, 1.0)]);
}

#[test]
fn a_contribution_that_comes_after_the_quorum_is_dropped_and_counted_once() {
    let mut shard = shard("backup-workers", "spare = 1", 3);
    on(&mut shard, push(0, 0));
    on(&mut shard, push_part(1, 0, rows(&[0], 10.0), false));
    on(&mut shard, push(2, 0));
    assert_eq!((shard.model().f64(TABLE)[0], shard.dropped()), (101.0, 0));
    on(&mut shard, push_part(1, 0, rows(&[1], 10.0), false));
    on(&mut shard, push_part(1, 0, rows(&[2], 10.0), true));
    assert_eq!((&shard.model().f64(TABLE)[..2], shard.dropped()), (&[101.0, 0.0][..], 1));
    // Whoever is late hears where the flock is.
    let told = on(&mut shard, pull(1, 0));
    let [Command::Answer { news: News { slowest: 1, .. }, .. }] = &told[..] else {
        panic!("{told:?}")
    };
}

#[test]
fn a_pull_waits_for_exactly_what_is_due() {
    for (name, parameters) in [("async", ""), ("ssp", "bound = 9\npush = false")] {
        let mut shard = shard(name, parameters, 2);
        on(&mut shard, push(0, 0));
        on(&mut shard, push(1, 0));
        assert_eq!(answers(&mut shard, pull_due(0, 1, &[1, 1])), [(0, 11.0)], "{name}");
        assert_eq!(answers(&mut shard, pull_due(0, 2, &[2, 2])), []);
        assert_eq!(answers(&mut shard, push(0, 1)), []);
        assert_eq!(answers(&mut shard, push(1, 1)), [(0, 22.0)], "{name}");
        // Whoever has finished has nothing due.
        assert_eq!(answers(&mut shard, pull_due(0, 9, &[2, 9])), []);
        assert_eq!(answers(&mut shard, Event::Finished { from: Seat(1) }), [(0, 22.0)]);
    }
}

#[test]
fn a_warm_start_waits_for_the_first_seat() {
    let mut shard = shard("async", "", 2);
    let after = Asks { after: 3, ..Asks::default() };
    assert_eq!(answers(&mut shard, pull_asking(1, 3, after)), []);
    assert_eq!(answers(&mut shard, push(0, 0)), []);
    assert_eq!(answers(&mut shard, push(0, 1)), []);
    assert_eq!(answers(&mut shard, push(0, 2)), [(1, 3.0)]);
    // A flock that stops, or a first seat that is done, is as warm as it will be.
    for end in [
        Event::Finished { from: Seat(0) },
        pull_asking(0, 1, Asks { stop: true, ..Asks::default() }),
    ] {
        let mut shard = self::shard("async", "", 2);
        assert_eq!(answers(&mut shard, pull_asking(1, 3, after)), []);
        assert!(answers(&mut shard, end).contains(&(1, 0.0)));
    }
}

#[test]
fn a_plan_is_a_step_that_nobody_has_started() {
    let stop = Asks { stop: true, ..Asks::default() };
    let planned = |shard: &mut Shard, event| match &on(shard, event)[..] {
        [Command::Answer { news, .. }] => news.stop_at,
        other => panic!("{other:?}"),
    };
    let mut shard = shard("async", "", 3);
    on(&mut shard, pull(0, 7));
    assert_eq!(planned(&mut shard, pull_asking(1, 2, stop)), Some(8));
    assert_eq!(planned(&mut shard, pull_asking(2, 30, stop)), Some(8), "one plan is enough");
    // Where workers start steps unasked, nobody can have gone further than the bound.
    let mut shard = self::shard("ssp", "bound = 4\npush = true", 2);
    assert_eq!(planned(&mut shard, pull_asking(1, 0, stop)), Some(5));
}

#[test]
fn cuts_are_planned_again_when_all_have_passed_the_last() {
    let mut shard = shard("bsp", "", 1);
    let cut = Asks { cut: true, ..Asks::default() };
    let planned = |shard: &mut Shard, step| match &on(shard, pull_asking(0, step, cut))[..] {
        [Command::Answer { news, .. }] => news.cut_at,
        other => panic!("{other:?}"),
    };
    assert_eq!(planned(&mut shard, 0), Some(1));
    (0..5).for_each(|step| drop(on(&mut shard, push(0, step))));
    assert_eq!(planned(&mut shard, 5), Some(5));
}

#[test]
fn fresh_rows_go_to_whoever_reads_them_when_the_slowest_clock_advances() {
    let mut shard = shard("ssp", "bound = 2\npush = true", 2);
    let these = |from, rows: &[u32]| {
        let wanted = [(TABLE.to_string(), WantedRows::These(rows.to_vec()))].into();
        let (asks, due) = (Asks::default(), Vec::new());
        Event::Pull { from: Seat(from), step: Step(0), wanted, asks, due }
    };
    on(&mut shard, these(0, &[0, 3]));
    on(&mut shard, these(1, &[4]));
    assert!(on(&mut shard, push_part(0, 0, rows(&[0, 1, 4], 1.0), true)).is_empty());
    let told = on(&mut shard, push_part(1, 0, rows(&[0], 1.0), true));
    let fresh = |command: &Command| match command {
        Command::Fresh { to, rows, news } => {
            let Body::Rows(rows) = &rows[0].body else { panic!("fresh rows are rows") };
            (to.0, rows.index.clone(), rows.values.as_f64().unwrap().to_vec(), news.slowest)
        }
        other => panic!("{other:?}"),
    };
    let told: Vec<_> = told.iter().map(fresh).collect();
    assert_eq!(told, [(0, vec![0], vec![2.0], 1), (1, vec![4], vec![1.0], 1)]);
}

#[test]
fn who_starts_steps_unasked_shows_its_lead_when_it_pushes() {
    let mut shard = shard("ssp", "bound = 2\npush = true", 2);
    let mut leads = Vec::new();
    for (from, step) in [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (1, 3)] {
        on(&mut shard, push(from, step));
        leads.push(shard.lead_max());
    }
    assert_eq!(leads, [0, 1, 2, 2, 2, 2]);
    assert_eq!(alone_for(5).lead_max(), 0, "nobody is ahead of itself");
}

/// The shard of one worker that has pushed so many steps.
fn alone_for(steps: u64) -> Shard {
    let mut shard = shard("ssp", "bound = 2\npush = true", 1);
    (0..steps).for_each(|step| drop(on(&mut shard, push(0, step))));
    shard
}

#[test]
fn a_reader_is_told_which_of_its_own_steps_it_reads() {
    let mut shard = shard("ssp", "bound = 2\npush = true", 2);
    (0..2).for_each(|step| drop(on(&mut shard, push(1, step))));
    let own = |command: &Command| match command {
        Command::Fresh { to, news, .. } | Command::Answer { to, news, .. } => (to.0, news.own),
        other => panic!("{other:?}"),
    };
    let told = on(&mut shard, push(0, 0));
    assert_eq!(told.iter().map(own).collect::<Vec<_>>(), [(0, 1), (1, 2)]);
    let told = on(&mut shard, pull(0, 1));
    assert_eq!(told.iter().map(own).collect::<Vec<_>>(), [(0, 1)]);
}

#[test]
fn impossible_requests_fail_and_do_not_panic() {
    for (name, parameters) in [("bsp", ""), ("async", ""), ("ssp", ""), ("backup-workers", "")] {
        let fresh = || shard(name, parameters, 2);
        let wanted = |name: &str, rows| {
            let wanted = [(name.to_string(), rows)].into();
            let (asks, due) = (Asks::default(), Vec::new());
            Event::Pull { from: Seat(1), step: Step(0), wanted, asks, due }
        };
        let mut wide = rows(&[0], 1.0);
        wide.blocks[0].name = "other".to_string();
        let counts = Update { blocks: vec![Block::counts(TABLE, vec![1])] };
        let impossible = [
            push(2, 0),
            push(1, u64::MAX),
            pull(1, u64::MAX),
            push_part(1, 0, rows(&[ROWS], 1.0), true),
            push_part(1, 0, rows(&[1, 1], 1.0), true),
            push_part(1, 0, wide, true),
            push_part(1, 0, counts, true),
            wanted("other", WantedRows::Owned),
            wanted(TABLE, WantedRows::These(vec![ROWS])),
            wanted(TABLE, WantedRows::These(vec![2, 1])),
        ];
        for event in impossible {
            assert!(fails(&mut fresh(), event.clone()), "{name}: {event:?}");
        }
        // A step is pushed once.
        let mut shard = shard(name, parameters, 3);
        on(&mut shard, push(0, 0));
        assert!(fails(&mut shard, push(0, 0)), "{name}");
        // A stranger that says goodbye changes nothing.
        let mut shard = fresh();
        assert!(on(&mut shard, Event::Finished { from: Seat(9) }).is_empty());
        on(&mut shard, push(0, 0));
        on(&mut shard, push(1, 0));
        assert!(shard.model().f64(TABLE)[0] > 0.0);
    }
    let mut shard = shard("bsp", "", 2);
    (0..2).for_each(|seat| drop(on(&mut shard, push(seat, 0))));
    assert!(fails(&mut shard, push(1, 0)), "a barrier drops nothing in silence");
}

/// What a temper was told: staleness, rows as they were read, and as they are.
type Told = (u64, Vec<f64>, Vec<f64>);

#[derive(Default)]
struct Recording(Arc<Mutex<Vec<Told>>>);

impl Temper for Recording {
    fn temper(&self, rows: &mut Rows, late: &Late<'_>) {
        let numbers = |rows: Option<&Rows>| rows.unwrap().values.as_f64().unwrap().to_vec();
        assert_eq!(late.read.unwrap().index, rows.index);
        assert_eq!((late.world, late.share), (3, 3), "eight rows of data among three");
        self.0.lock().unwrap().push((late.staleness, numbers(late.read), numbers(late.now)));
        if let Values::F64(values) = &mut rows.values {
            values.iter_mut().for_each(|value| *value *= 2.0);
        }
    }

    fn remembers(&self) -> bool {
        true
    }
}

#[test]
fn a_temper_is_told_what_came_between_reading_and_pushing() {
    for (name, parameters) in [("async", ""), ("ssp", "bound = 9\npush = false")] {
        let temper = Recording::default();
        let told = temper.0.clone();
        let next = || told.lock().unwrap().pop().unwrap();
        let gate = gate(name, parameters).unwrap();
        let mut shard = shard_of(gate, Blending::Tempered(Box::new(temper)), 3);
        (0..3).for_each(|seat| drop(on(&mut shard, pull(seat, 0))));
        on(&mut shard, push_part(0, 0, rows(&[0, 1], 1.0), true));
        assert_eq!(next(), (0, vec![0.0; 2], vec![0.0; 2]));
        // Seat 1 read before that.
        on(&mut shard, push_part(1, 0, rows(&[1, 2], 1.0), true));
        assert_eq!(next(), (1, vec![0.0, 0.0], vec![2.0, 0.0]));
        // Seat 2 reads a part again: those rows are as it read them now, the others as before.
        let wanted = [(TABLE.to_string(), WantedRows::These(vec![1]))].into();
        let (asks, due) = (Asks::default(), Vec::new());
        on(&mut shard, Event::Pull { from: Seat(2), step: Step(0), wanted, asks, due });
        on(&mut shard, push_part(0, 1, rows(&[1], 1.0), true));
        assert_eq!(next(), (2, vec![0.0], vec![4.0]), "its own contribution came between, too");
        on(&mut shard, push_part(2, 0, rows(&[0, 1], 1.0), false));
        assert_eq!(next(), (1, vec![0.0, 4.0], vec![2.0, 6.0]), "{name}");
        // Another part of the same contribution is as late as the first.
        on(&mut shard, push_part(2, 0, rows(&[2], 1.0), true));
        assert_eq!(next(), (1, vec![0.0], vec![2.0]));
        on(&mut shard, pull(2, 1));
        on(&mut shard, push_part(2, 1, rows(&[0, 1, 2], 1.0), true));
        assert_eq!(next(), (0, vec![4.0, 8.0, 4.0], vec![4.0, 8.0, 4.0]));
        assert_eq!(shard.model().f64(TABLE)[..4], [6.0, 10.0, 6.0, 0.0], "tempered, then applied");
    }
}

/// Adds what is pushed to the row that it is of, in whichever numbers.
struct Adds;

impl Rule for Adds {
    fn prepare(&self, _: &mut Model) {}

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<(), Fault> {
        for block in &update.blocks {
            let Body::Rows(rows) = &block.body else { panic!("owners get rows") };
            let tensor = model.get_mut(&block.name).unwrap();
            tensor.values.add_at(rows.index[0] as usize * tensor.width(), &rows.values).unwrap();
        }
        Ok(())
    }
}

/// What a weight becomes, in the numbers of its tensor, to which one worker adds −1 and then another, which has read it
/// before, 2.
fn compensated(consistency: &str, numbers: fn(Vec<f64>) -> Values) -> f64 {
    let mut model = Model::new();
    model.set(
        TABLE,
        Tensor { shape: vec![2, 2], values: numbers(vec![0.0; 4]), role: Role::Weight },
    );
    let office = Office {
        rule: Arc::new(Adds),
        gate: gate("async", "").unwrap(),
        blending: blending("delay-compensated", consistency),
        owners: Arc::new(Ownership::of(&model, 1)),
        seat: Seat(0),
        pushers: vec![Seat(0), Seat(1)],
    };
    let mut shard = Shard::new(office, model, Step(0));
    let gradient = |number: f64| {
        let values = numbers(vec![number; 2]);
        let rows = Rows { total: 2, width: 2, index: vec![1], values };
        Update { blocks: vec![Block::rows(TABLE, rows)] }
    };
    (0..2).for_each(|seat| drop(on(&mut shard, pull(seat, 0))));
    on(&mut shard, push_part(0, 0, gradient(-1.0), true));
    on(&mut shard, push_part(1, 0, gradient(2.0), true));
    let tensor = shard.model().get(TABLE).unwrap();
    match &tensor.values {
        Values::F32(values) => f64::from(values[3]),
        Values::F64(values) => values[3],
        Values::I64(values) => values[3] as f64,
    }
}

#[test]
fn a_late_gradient_is_compensated_in_short_and_long_numbers_alike() {
    let short = |values: Vec<f64>| Values::F32(values.iter().map(|&value| value as f32).collect());
    for numbers in [short as fn(Vec<f64>) -> Values, Values::F64] {
        assert_eq!(compensated("lambda = 0.0", numbers), 1.0, "nothing is compensated");
        // The share of each is four rows: 2 + λ/4 · 2² · (−1 − 0), with −1 there already.
        assert_eq!(compensated("lambda = 0.5", numbers), 0.5);
        // Mean gradients were −1/4 and 2/4.
        let adapted = compensated("lambda = 0.5\ndecay = 0.5", numbers);
        let (first, second) = (0.25f64.powi(2) / 2.0, 0.5f64.powi(2) / 2.0);
        let mean = (first / 2.0 + second + 1e-7f64).sqrt();
        assert!((adapted - (1.0 - 0.5 / mean)).abs() < 1e-6, "{adapted}");
    }
}
