//! Wait-free back-propagation: what leaves link by link while lower layers are still computed is what one backward pass
//! through the whole graph gives.

use crate::world::{batch, facts, moment, network, table};
use starlings_core::{Block, Body, Rng, Update, Values};
use starlings_data::{Batch, Table};
use starlings_learn::{Learner, Memory, NoWires, Outbox, Place, Sink, Work};
use std::sync::{Arc, Mutex};

/// Takes every block, and notes how many it had at each pause.
#[derive(Default)]
struct Taken {
    update: Update,
    pauses: Vec<usize>,
}

struct Takes(Arc<Mutex<Taken>>);

impl Sink for Takes {
    fn take(&mut self, block: Block) -> Option<Block> {
        self.0.lock().unwrap().update.blocks.push(block);
        None
    }

    fn pause(&mut self) {
        let mut taken = self.0.lock().unwrap();
        let count = taken.update.blocks.len();
        taken.pauses.push(count);
    }
}

fn contributed(learner: &dyn Learner, batch: &Batch<'_>, early: bool, table: &Table) -> Taken {
    let model = learner.init(&facts(table, 3), Place::WHOLE).unwrap();
    let taken = Arc::new(Mutex::new(Taken::default()));
    let mut outbox = Outbox::new();
    outbox.attach(early.then(|| Box::new(Takes(taken.clone())) as Box<dyn Sink>));
    learner
        .contribute(&mut Work {
            moment: moment(batch.rows_step),
            place: Place::WHOLE,
            model: &model,
            batch,
            memory: &mut Memory::new(),
            wires: &mut NoWires,
            outbox: &mut outbox,
        })
        .unwrap();
    let late = outbox.take();
    let mut taken = std::mem::take(&mut *taken.lock().unwrap());
    taken.update.blocks.extend(late.blocks);
    taken
}

/// Networks with several links: name, parameters, features, and how many links they have.
const NETWORKS: &[(&str, &str, usize, usize)] = &[
    ("mlp", "hidden = [200, 200, 200]\ndropout = 0.2", 180, 3),
    ("mlp", "hidden = [200, 200]\nnorm = 'batch-norm'\naccumulate = 2", 180, 2),
    (
        "cnn",
        "shape = [1, 16, 16]\nlayers = ['conv 8', 'relu', 'max-pool 2', 'linear 128', 'relu']",
        256,
        2,
    ),
    ("transformer", "width = 64\nheads = 4\nblocks = 2\nsteps = 4", 32, 3),
    ("vae", "hidden = [256]\ncode = 64", 150, 3),
];

#[test]
fn gradients_that_leave_link_by_link_are_those_of_the_whole_graph() {
    for &(name, settings, width, links) in NETWORKS {
        let learner = network(name, settings).unwrap();
        let mut rng = Rng::named(5, "links", &[]);
        let values = (0..width * 24).map(|_| rng.normal() as f32).collect();
        let table = table(width, values, (0..24).map(|row| (row % 3) as f32).collect());
        let batch = batch(&table, &[7, 9, 8]);
        let whole = contributed(&*learner, &batch, false, &table);
        let early = contributed(&*learner, &batch, true, &table);
        assert_eq!(early.pauses.len(), links - 1, "{name} {settings}");
        let names = |taken: &Taken| -> Vec<String> {
            taken.update.blocks.iter().map(|block| block.name.clone()).collect()
        };
        assert_eq!(names(&early), names(&whole), "{name} {settings}");
        for (found, wanted) in early.update.blocks.iter().zip(&whole.update.blocks) {
            near(name, found, wanted);
        }
        // Who has no rows emits the same blocks and pauses at the same places.
        let none = contributed(&*learner, &crate::world::batch(&table, &[]), true, &table);
        assert_eq!((names(&none), none.pauses), (names(&whole), early.pauses), "{name}");
    }
}

fn near(name: &str, found: &Block, wanted: &Block) {
    let numbers = |block: &Block| -> Vec<f64> {
        match &block.body {
            Body::Dense(Values::F32(values)) => values.iter().map(|&x| f64::from(x)).collect(),
            Body::Dense(Values::F64(values)) => values.clone(),
            other => panic!("{other:?}"),
        }
    };
    let (found_numbers, wanted_numbers) = (numbers(found), numbers(wanted));
    let size = wanted_numbers.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    assert_eq!(found_numbers.len(), wanted_numbers.len());
    for (a, b) in found_numbers.iter().zip(&wanted_numbers) {
        assert!((a - b).abs() <= 1e-6 * size, "{name}: {}: {a} instead of {b}", found.name);
    }
}
