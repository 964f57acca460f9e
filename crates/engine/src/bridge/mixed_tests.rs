//! Averaging over graphs keeps the mean and shrinks the spread as fast as the graph's spectrum says; control mixes more
//! where models are far apart. Neighbours send as many bytes as is said.

use super::*;
use crate::bridge::adder::{
    Adder, PATIENCE, Perch, assert_near, blending, flock, form, model, perches, run_all, step,
};
use crate::choices::raw;
use starlings_core::Rng;
use starlings_topology::{Cost, Form};
use starlings_transport::HEADER_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};

fn graph(name: &str) -> Arc<dyn Graph> {
    match form("averaging", &format!("graph = \"{name}\"")) {
        Form::Graph(graph) => graph.into(),
        _ => panic!("averaging is a graph"),
    }
}

fn mixed(perch: &Perch, graph: Arc<dyn Graph>, blending: Arc<Blending>, waits: bool) -> Mixed {
    let options = MixOptions { graph, blending, codec: raw(), waits, patience: PATIENCE };
    Mixed::new(Adder::shared(), options, perch.net.clone(), perch.exact(3))
}

/// The models of all seats after each of some rounds of mixing, from given ones and without steps.
fn rounds(name: &str, start: &[Vec<f64>], count: u64) -> Vec<Vec<Vec<f64>>> {
    let graph = graph(name);
    let histories = flock(start.len() as u32, |perch| {
        let own = &start[perch.seat()];
        let mut mixed = mixed(&perch, graph.clone(), Arc::new(Blending::Plain), true);
        let mut model = model(own.clone());
        let zeros = vec![0.0; own.len()];
        let round = |number| {
            mixed.finish(step(number, zeros.clone()), &mut model).unwrap();
            model.f64("x").to_vec()
        };
        let history: Vec<Vec<f64>> = (0..count).map(round).collect();
        // Nobody leaves before all are done.
        mixed.sum(vec![]).unwrap();
        history
    });
    let at = |round: usize| histories.iter().map(|history| history[round].clone()).collect();
    (0..count as usize).map(at).collect()
}

fn mean(models: &[Vec<f64>]) -> Vec<f64> {
    let sum = |at: usize| models.iter().map(|model| model[at]).sum::<f64>();
    (0..models[0].len()).map(|at| sum(at) / models.len() as f64).collect()
}

/// The distance of all models from their mean.
fn spread(models: &[Vec<f64>]) -> f64 {
    let mean = mean(models);
    let squares =
        models.iter().flat_map(|model| model.iter().zip(&mean)).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>().sqrt()
}

/// The matrix of a graph's weights in a round.
fn matrix(graph: &dyn Graph, world: u32, round: u64) -> Vec<Vec<f64>> {
    let mut matrix = vec![vec![0.0; world as usize]; world as usize];
    for seat in (0..world).map(Seat) {
        for (peer, weight) in graph.weights(seat, world, round) {
            matrix[seat.index()][peer.index()] = weight;
        }
    }
    matrix
}

fn times(matrix: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
}

fn transposed(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    (0..matrix.len()).map(|column| matrix.iter().map(|row| row[column]).collect()).collect()
}

/// The second-largest singular value of a doubly stochastic matrix and its vector, by power iteration beside the mean.
fn second_singular(matrix: &[Vec<f64>]) -> (f64, Vec<f64>) {
    let mut rng = Rng::named(3, "power iteration", &[]);
    let mut vector: Vec<f64> = matrix.iter().map(|_| rng.normal()).collect();
    let (mut value, back) = (0.0, transposed(matrix));
    for _ in 0..2_000 {
        let mean = vector.iter().sum::<f64>() / vector.len() as f64;
        vector.iter_mut().for_each(|number| *number -= mean);
        let norm = vector.iter().map(|number| number * number).sum::<f64>().sqrt();
        vector.iter_mut().for_each(|number| *number /= norm);
        let onward = times(matrix, &vector);
        value = onward.iter().map(|number| number * number).sum::<f64>().sqrt();
        if value < 1e-12 {
            return (0.0, vector);
        }
        let next = times(&back, &onward);
        vector = next;
    }
    let norm = vector.iter().map(|number| number * number).sum::<f64>().sqrt();
    vector.iter_mut().for_each(|number| *number /= norm);
    (value, vector)
}

fn random_models(world: u32) -> Vec<Vec<f64>> {
    let mut rng = Rng::named(5, "models", &[u64::from(world)]);
    (0..world).map(|_| (0..3).map(|_| rng.normal()).collect()).collect()
}

#[test]
fn mixing_keeps_the_mean_and_shrinks_the_spread_no_slower_than_the_graph_says() {
    for (name, world) in [("ring", 6), ("torus", 9), ("random-regular", 7), ("exponential", 6)] {
        let start = random_models(world);
        let (graph, before) = (graph(name), mean(&start));
        let mut last = spread(&start);
        for (round, models) in rounds(name, &start, 8).iter().enumerate() {
            assert_near(&mean(models), &before, 1e-12);
            let (second, _) = second_singular(&matrix(&*graph, world, round as u64));
            let now = spread(models);
            assert!(
                now <= second * last + 1e-12,
                "{name}: {now} after {last} in round {round}, {second}"
            );
            last = now;
        }
        assert!(last < 0.7 * spread(&start), "{name} does mix");
    }
}

#[test]
fn the_rate_of_a_graph_is_its_second_singular_value() {
    for (name, world) in [("ring", 6), ("torus", 9), ("random-regular", 7)] {
        let graph = graph(name);
        let (second, vector) = second_singular(&matrix(&*graph, world, 0));
        assert!(second > 0.1 && second < 0.99, "{name}: {second}");
        let start: Vec<Vec<f64>> = vector.iter().map(|number| vec![7.0 + number]).collect();
        let mut last = spread(&start);
        for models in rounds(name, &start, 4) {
            let now = spread(&models);
            assert!(
                (now / last - second).abs() < 1e-6,
                "{name}: {} instead of {second}",
                now / last
            );
            last = now;
        }
    }
}

#[test]
fn an_exponential_graph_of_a_power_of_two_agrees_after_one_turn() {
    let start = random_models(8);
    let after = rounds("exponential", &start, 3);
    assert!(spread(&after[1]) > 0.01);
    assert!(spread(&after[2]) < 1e-12, "{}", spread(&after[2]));
}

#[test]
fn neighbours_send_as_many_bytes_as_is_said() {
    let (steps, len) = (4, 1000);
    let graphs = ["ring", "torus", "random-regular", "exponential"]
        .map(|shape| ("averaging", format!("graph = '{shape}'")));
    for (name, given) in graphs.into_iter().chain([("halton", String::new())]) {
        for world in [1, 2, 5, 8] {
            let Form::Graph(graph) = form(name, &given) else { panic!("{name} is a graph") };
            let (graph, seats): (Arc<dyn Graph>, _) = (graph.into(), perches(world));
            run_all(&seats, |perch| {
                let mut mixed = mixed(&perch, graph.clone(), Arc::new(Blending::Plain), true);
                let mut model = model(vec![0.0; len]);
                for number in 0..steps {
                    mixed.finish(step(number, vec![1.0; len]), &mut model).unwrap();
                }
            });
            // Before the numbers a message says of which round it is.
            let sent = seats.iter().map(|perch| {
                let heads = perch.sent(Lane::Exchange, MIXED) * (HEADER_BYTES + 24);
                (perch.net.bytes_sent() - heads as u64) as f64
            });
            let sent: Vec<f64> = sent.collect();
            let cost = graph.cost(world, (len * 8) as u64);
            let said = [cost.bytes_sent_max, cost.bytes_sent_total].map(|it| it * steps as f64);
            let counted = [sent.iter().copied().fold(0.0, f64::max), sent.iter().sum()];
            assert_eq!(said, counted, "{name} {given}, {world} seats: {sent:?}");
        }
    }
}

/// A graph that counts how often a seat is asked to mix.
struct Counted(Arc<dyn Graph>, AtomicU64);

impl Graph for Counted {
    fn sends_to(&self, seat: Seat, world: u32, round: u64) -> Vec<Seat> {
        self.1.fetch_add(u64::from(seat == Seat(0)), Ordering::Relaxed);
        self.0.sends_to(seat, world, round)
    }

    fn weights(&self, seat: Seat, world: u32, round: u64) -> Vec<(Seat, f64)> {
        self.0.weights(seat, world, round)
    }

    fn rounds_max(&self, world: u32) -> u64 {
        self.0.rounds_max(world)
    }

    fn turn(&self, world: u32) -> u64 {
        self.0.turn(world)
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        self.0.cost(world, bytes)
    }
}

#[test]
fn consensus_control_mixes_more_where_models_are_far_apart() {
    let mixes = |apart: f64, controlled: bool| {
        let counted = Arc::new(Counted(graph("ring"), AtomicU64::new(0)));
        let models = flock(6, |perch| {
            let control = blending("consensus-control", "ratio = 0.5\nrounds_max = 50");
            let blending = if controlled { control } else { Arc::new(Blending::Plain) };
            let mut mixed = mixed(&perch, counted.clone(), blending, true);
            let mut model = model(vec![apart * perch.seat() as f64]);
            mixed.finish(step(0, vec![1.0]), &mut model).unwrap();
            mixed.sum(vec![]).unwrap();
            model.f64("x").to_vec()
        });
        (counted.1.load(Ordering::Relaxed), spread(&models) / 6f64.sqrt())
    };
    assert_eq!(mixes(0.0, true).0, 1, "models that are equal mix once");
    let (near, far) = (mixes(1.0, true), mixes(100.0, true));
    assert!(1 < near.0 && near.0 < far.0 && far.0 < 50, "{near:?} {far:?}");
    assert_eq!(mixes(100.0, false).0, 1, "without control they mix once however far they are");
    // The step was 1 long, so half of that is allowed.
    assert!(far.1 <= 0.5 && near.1 <= 0.5 && mixes(100.0, false).1 > 20.0, "{near:?} {far:?}");
}

/// Steps that pull neighbours together and opposite seats of a ring apart, which mixes worst, and some noise.
fn pulled_apart(seat: usize, world: u32, number: u64) -> Vec<f64> {
    let mut rng = Rng::named(2, "steps", &[seat as u64, number]);
    let angle = std::f64::consts::TAU * seat as f64 / f64::from(world);
    vec![angle.cos() + 0.2 * rng.normal(), angle.sin() + 0.2 * rng.normal(), rng.normal()]
}

#[test]
fn after_controlled_rounds_the_true_distance_is_within_the_critical_one() {
    let cases =
        [("ring", 8), ("ring", 16), ("torus", 12), ("random-regular", 9), ("exponential", 6)];
    for (name, world) in cases {
        let counted = Arc::new(Counted(graph(name), AtomicU64::new(0)));
        let histories = flock(world, |perch| {
            let control = blending("consensus-control", "ratio = 0.5\nrounds_max = 400");
            let mut mixed = mixed(&perch, counted.clone(), control, true);
            let mut model = model(vec![0.0; 3]);
            let steps = (0..25).map(|number| {
                let adds = pulled_apart(perch.seat(), world, number);
                mixed.finish(step(number, adds), &mut model).unwrap();
                (model.f64("x").to_vec(), model.f64(CRITICAL)[0])
            });
            let history: Vec<(Vec<f64>, f64)> = steps.collect();
            mixed.sum(vec![]).unwrap();
            history
        });
        for number in 0..25 {
            let models: Vec<Vec<f64>> = histories.iter().map(|it| it[number].0.clone()).collect();
            let distance = spread(&models) / f64::from(world).sqrt();
            let critical = histories[0][number].1;
            assert!(
                distance <= critical * (1.0 + 1e-9),
                "{name} of {world}, step {number}: {distance} where {critical} is critical"
            );
        }
        let rounds = counted.1.load(Ordering::Relaxed);
        assert!(rounds < 25 * 40, "{name} of {world}: {rounds} rounds, which no limit has ended");
    }
}

#[test]
fn after_a_loss_all_decide_by_what_the_first_seat_remembers() {
    // Some had finished a step when somebody was lost, others had not: they remember different critical distances. If each
    // decided by its own, one would mix where another had ended.
    let models = flock(5, |perch| {
        let control = blending("consensus-control", "ratio = 0.1\nrounds_max = 60");
        let mut mixed = mixed(&perch, graph("ring"), control, true);
        let mut model = model(vec![7.0 * perch.seat() as f64; 3]);
        let remembered = [0.02, 50.0, 3.0, 0.4, 9.0][perch.seat()];
        if perch.seat() < 4 {
            model.set(CRITICAL, Tensor::of(&[1], vec![remembered], Role::State));
        }
        mixed.open(Step(3), &Needs::All, Asks::default(), &mut model).unwrap();
        mixed.finish(step(3, vec![0.1; 3]), &mut model).unwrap();
        mixed.sum(vec![]).unwrap();
        model
    });
    let critical: Vec<f64> = models.iter().map(|model| model.f64(CRITICAL)[0]).collect();
    assert!(critical.iter().all(|&it| it == critical[0] && it < 0.05), "{critical:?}");
}

#[test]
fn rounds_are_those_of_their_steps_whenever_an_exchange_is_built() {
    // Seven steps at a stretch, or three and four: the exponential graph goes on where it was.
    let walked = |stretches: &[(u64, u64)], controlled: bool| {
        flock(6, |perch| {
            let mut model = model(vec![perch.seat() as f64; 3]);
            for &(from, to) in stretches {
                let control = blending("consensus-control", "ratio = 0.3\nrounds_max = 30");
                let blending = if controlled { control } else { Arc::new(Blending::Plain) };
                let mut mixed = mixed(&perch, graph("exponential"), blending, true);
                for number in from..to {
                    let adds = pulled_apart(perch.seat(), 6, number);
                    mixed.finish(step(number, adds), &mut model).unwrap();
                }
                mixed.sum(vec![]).unwrap();
            }
            model
        })
    };
    for controlled in [false, true] {
        let at_once = walked(&[(0, 7)], controlled);
        assert_eq!(at_once, walked(&[(0, 3), (3, 7)], controlled), "controlled: {controlled}");
    }
}

#[test]
fn a_model_that_comes_from_no_neighbour_of_the_round_takes_no_weight() {
    // In a ring of four that does not wait, seat 0 mixes with seats 1 and 3; here only seat 2 has sent something.
    let seats = perches(4);
    let own = model(vec![8.0]);
    let codec = raw();
    let message = write([0, 0, 0], &weights(&model(vec![-5.0])), &*codec);
    let header = Header { lane: Lane::Exchange, kind: MIXED, step: Step(0), tag: 0 };
    let by = || Deadline::after(PATIENCE);
    seats[2].net.send(Seat(0), header, &message, by()).unwrap();
    seats[0].hear(&seats[2]);
    let mut mixed = mixed(&seats[0], graph("exponential"), Arc::new(Blending::Plain), false);
    let mut alone = own.clone();
    mixed.finish(step(0, vec![0.0]), &mut alone).unwrap();
    assert_near(alone.f64("x"), &[8.0], 1e-12);
    // A neighbour of the round is mixed with its share, however late it comes.
    let graph = graph("exponential");
    let shares = graph.weights(Seat(0), 4, 1);
    let peer = shares.iter().map(|(peer, _)| *peer).find(|peer| *peer != Seat(0)).unwrap();
    seats[peer.index()].net.send(Seat(0), header, &message, by()).unwrap();
    seats[0].hear(&seats[peer.index()]);
    mixed.finish(step(1, vec![0.0]), &mut alone).unwrap();
    assert_near(alone.f64("x"), &[1.5], 1e-12);
}
