//! Shards and their backups, event by event: what is shown when, what a mirror brings, and the way back by one step, to
//! the bit. Flocks that lose owners are simulated elsewhere.

use crate::choices::{gate, rule};
use crate::exchange::ownership::Ownership;
use crate::exchange::served::{Asks, Command, Event, Office, Shard, WantedRows};
use starlings_consistency::Blending;
use starlings_core::{Block, Body, Model, Rng, Role, Rows, Seat, Step, Tensor, Update, Values};
use starlings_learn::Moment;
use std::sync::Arc;

const TABLE: &str = "table";
const ROWS: u32 = 40;

/// The shards of a flock that apply AdaGrad: every row has a state beside it.
fn shards(gate_name: &str, world: u32) -> Vec<Shard> {
    let mut model = Model::new();
    let mut rng = Rng::named(1, "mirrors", &[]);
    let numbers = (0..2 * ROWS).map(|_| rng.normal()).collect();
    model.set(TABLE, Tensor::of(&[ROWS as usize, 2], numbers, Role::Weight));
    let adagrad = rule("adagrad", "learning_rate = 0.1").unwrap();
    adagrad.prepare(&mut model);
    let owners = Arc::new(Ownership::of(&model, world));
    let office = |seat| Office {
        rule: adagrad.clone(),
        gate: gate(gate_name, "").unwrap(),
        blending: Arc::new(Blending::Plain),
        owners: owners.clone(),
        seat: Seat(seat),
        pushers: (0..world).map(Seat).collect(),
    };
    let shard = |seat| Shard::new(office(seat), model.clone(), Step(0)).backed_up(world);
    (0..world).map(shard).collect()
}

/// A contribution to some of an owner's rows, different for each worker and step.
fn push(shard: &Shard, from: u32, step: u64) -> Event {
    let mut rng = Rng::named(step, "push", &[u64::from(from), u64::from(shard.seat().0)]);
    let mut index = shard.owners().rows(TABLE, shard.seat());
    index.retain(|_| rng.below(3) > 0);
    let values = Values::F64((0..2 * index.len()).map(|_| rng.normal()).collect());
    let rows = Rows { total: ROWS, width: 2, index, values };
    let moment = Moment { step: Step(step), pass: 0, seed: 0, rows: 8 };
    let update = Update { blocks: vec![Block::rows(TABLE, rows)] };
    Event::Push { from: Seat(from), moment, update, last: true }
}

fn pull(from: u32, step: u64) -> Event {
    let wanted = [(TABLE.to_string(), WantedRows::Owned)].into();
    let (asks, due) = (Asks::default(), Vec::new());
    Event::Pull { from: Seat(from), step: Step(step), wanted, asks, due }
}

fn on(shard: &mut Shard, event: Event) -> Vec<Command> {
    let mut commands = Vec::new();
    shard.on(event, &mut commands);
    commands
}

/// What a command to another shard is to it.
fn event(from: &Shard, command: Command) -> (usize, Event) {
    let from = from.seat();
    match command {
        Command::Mirror { to, number, rows } => (to.index(), Event::Mirror { from, number, rows }),
        Command::Mirrored { to, number } => (to.index(), Event::Mirrored { from, number }),
        other => panic!("{other:?}"),
    }
}

/// All workers push a step to a shard. Gives its mirror.
fn step(shards: &mut [Shard], at: usize, step: u64) -> (usize, Event) {
    let world = shards.len() as u32;
    let mut told = Vec::new();
    for from in 0..world {
        let pushed = push(&shards[at], from, step);
        told.extend(on(&mut shards[at], pushed));
    }
    assert_eq!(told.len(), 1, "one mirror and nothing else: {told:?}");
    event(&shards[at], told.remove(0))
}

fn deliver(shards: &mut [Shard], (to, event_of): (usize, Event)) -> Vec<Command> {
    on(&mut shards[to], event_of)
}

/// The rows of a seat with their state, as bits.
fn bits(model: &Model, owners: &Ownership, seat: Seat) -> Vec<u64> {
    let mut bits = Vec::new();
    for (name, tensor) in model.iter() {
        let rows = super::pick(tensor, owners.rows(name, seat));
        bits.extend(rows.values.as_f64().unwrap().iter().map(|it| it.to_bits()));
    }
    bits
}

#[test]
fn under_a_barrier_nothing_is_shown_before_the_backup_has_it() {
    let mut shards = shards("bsp", 3);
    let mirror = step(&mut shards, 1, 0);
    assert_eq!(mirror.0, 2, "the next seat is the backup");
    assert!(on(&mut shards[1], pull(0, 1)).is_empty(), "the step is complete, and not yet shown");
    let told = deliver(&mut shards, mirror);
    assert!(matches!(told[..], [Command::Mirrored { to: Seat(1), number: 1 }]), "{told:?}");
    let acknowledged = event(&shards[2], told[0].clone());
    let shown = deliver(&mut shards, acknowledged);
    assert!(matches!(shown[..], [Command::Answer { to: Seat(0), step: Step(1), .. }]), "{shown:?}");
}

#[test]
fn a_mirror_brings_the_rows_and_the_state_beside_them_and_no_others() {
    let mut shards = shards("bsp", 3);
    let fresh = shards[2].model().clone();
    for number in 0..3 {
        let mirror = step(&mut shards, 1, number);
        let told = deliver(&mut shards, mirror);
        let acknowledged = event(&shards[2], told[0].clone());
        deliver(&mut shards, acknowledged);
    }
    let owners = shards[1].owners().clone();
    let of = |at: usize, seat: u32| bits(shards[at].model(), &owners, Seat(seat));
    assert_ne!(of(1, 1), bits(&fresh, &owners, Seat(1)));
    assert_eq!(of(2, 1), of(1, 1));
    for seat in [0, 2] {
        assert_eq!(of(2, seat), bits(&fresh, &owners, Seat(seat)));
    }
    assert_eq!((shards[1].complete(), shards[2].kept(), shards[2].complete()), (3, 3, 0));
}

#[test]
fn owner_and_backup_go_back_by_one_step_to_the_bit_and_by_no_more() {
    let mut shards = shards("bsp", 2);
    let owners = shards[0].owners().clone();
    let mut before = bits(shards[0].model(), &owners, Seat(0));
    for number in 0..4 {
        let mirror = step(&mut shards, 0, number);
        let told = deliver(&mut shards, mirror);
        for shard in &shards {
            let back = shard.model_at(number).unwrap();
            assert_eq!(bits(&back, &owners, Seat(0)), before, "{} step {number}", shard.seat());
            let now = shard.model_at(number + 1).unwrap();
            assert_eq!(&now, shard.model(), "{} step {number}", shard.seat());
        }
        assert!(number == 0 || shards[0].model_at(number - 1).is_none());
        before = bits(shards[0].model(), &owners, Seat(0));
        let acknowledged = event(&shards[1], told[0].clone());
        deliver(&mut shards, acknowledged);
    }
    // The backup is behind: it has what the owner goes back to.
    drop(step(&mut shards, 0, 4));
    assert_eq!((shards[0].complete(), shards[1].kept()), (5, 4));
    let [owner, backup] = [0, 1].map(|at: usize| shards[at].model_at(4).unwrap());
    assert_eq!(bits(&owner, &owners, Seat(0)), bits(&backup, &owners, Seat(0)));
}

#[test]
fn without_a_barrier_nobody_waits_and_what_changes_meanwhile_goes_with_the_next_mirror() {
    let mut shards = shards("async", 2);
    let first = push(&shards[0], 1, 0);
    let told = on(&mut shards[0], first);
    assert!(matches!(told[..], [Command::Mirror { to: Seat(1), number: 1, .. }]), "{told:?}");
    let mirror = event(&shards[0], told[0].clone());
    for number in 1..4 {
        let more = push(&shards[0], 1, number);
        assert!(on(&mut shards[0], more).is_empty(), "one mirror is under way");
        assert_eq!(on(&mut shards[0], pull(1, number)).len(), 1, "and pulls are answered");
    }
    let told = deliver(&mut shards, mirror);
    let acknowledged = event(&shards[1], told[0].clone());
    let told = deliver(&mut shards, acknowledged);
    assert!(matches!(told[..], [Command::Mirror { number: 2, .. }]), "{told:?}");
    let mirror = event(&shards[0], told[0].clone());
    let told = deliver(&mut shards, mirror);
    let owners = shards[0].owners().clone();
    let of = |at: usize| bits(shards[at].model(), &owners, Seat(0));
    assert_eq!(of(0), of(1));
    let acknowledged = event(&shards[1], told[0].clone());
    assert!(deliver(&mut shards, acknowledged).is_empty(), "nothing has changed since");
}

#[test]
fn impossible_mirrors_fail_and_change_nothing() {
    let fails = |shard: &mut Shard, event: Event| {
        on(shard, event).iter().any(|command| matches!(command, Command::Fail(_)))
    };
    let mut flock = shards("bsp", 3);
    let (_, good) = step(&mut flock, 0, 0);
    let Event::Mirror { number, rows, .. } = &good else { panic!("{good:?}") };
    let with = |from: u32, number: u64, rows: Vec<Block>| {
        let from = Seat(from);
        Event::Mirror { from, number, rows }
    };
    let altered = |change: &dyn Fn(&mut Rows)| {
        let mut rows = rows.clone();
        let Body::Rows(first) = &mut rows[0].body else { panic!("a mirror is of rows") };
        change(first);
        rows
    };
    let other = flock[2].owners().rows(TABLE, Seat(2))[0];
    let mut unknown = rows.clone();
    unknown[0].name = "other".to_string();
    let impossible = [
        with(2, *number, rows.clone()),
        with(0, number + 1, rows.clone()),
        with(0, 0, rows.clone()),
        with(0, *number, unknown),
        with(0, *number, vec![Block::dense(TABLE, vec![0.0; 80])]),
        with(0, *number, altered(&|rows| rows.index[0] = other)),
        with(0, *number, altered(&|rows| rows.total += 1)),
        with(0, *number, altered(&|rows| rows.values = Values::I64(vec![0; rows.values.len()]))),
        Event::Mirrored { from: Seat(2), number: 1 },
        Event::Mirrored { from: Seat(0), number: 0 },
    ];
    for event in impossible {
        let shard = &mut shards("bsp", 3)[1];
        assert!(fails(shard, event.clone()), "{event:?}");
        assert_eq!(shard.kept(), 0);
    }
    assert!(!fails(&mut flock[1], good));
    // A shard that is alone has no backup, and a flock that cannot lose anyone has none either.
    let mut alone = shards("bsp", 1);
    let pushed = push(&alone[0], 0, 0);
    assert!(on(&mut alone[0], pushed).is_empty());
    assert_eq!(on(&mut alone[0], pull(0, 1)).len(), 1);
    assert!(fails(&mut alone[0], Event::Mirrored { from: Seat(0), number: 1 }));
    assert!(fails(&mut alone[0], with(0, 1, Vec::new())));
}
