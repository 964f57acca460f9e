//! The laws of graphs over which models are mixed: matrices are written out, news and numbers are spread over
//! them on paper.

use super::{BYTES, Verdict, cost_is, ensure, worlds};
use starlings_core::{Rng, Seat};
use starlings_topology::{Cost, Graph};
use std::collections::BTreeSet;

/// All laws of a graph.
///
/// # Errors
/// The first broken law.
pub fn check_graph(graph: &dyn Graph) -> Verdict {
    worlds().try_for_each(|world| laws(graph, world).map_err(|law| format!("world {world}: {law}")))
}

/// By how much `rounds` rounds of mixing shrink the spread of models around their mean, at worst: the largest
/// singular value of the product of the rounds' matrices, over vectors of mean zero.
#[must_use]
pub fn shrinkage(graph: &dyn Graph, world: u32, rounds: u64) -> f64 {
    let matrices: Vec<Matrix> = (0..rounds).map(|round| Matrix::of(graph, world, round)).collect();
    let mut models = random_models(world);
    let mut stretch = 0.0;
    // Power iteration with the product and its transpose.
    for _ in 0..300 {
        centre(&mut models);
        let length = spread(&models);
        if length < 1e-100 {
            return 0.0;
        }
        models.iter_mut().for_each(|x| *x /= length);
        models = matrices.iter().fold(models, |models, matrix| matrix.mix(&models));
        stretch = spread(&models);
        models = matrices.iter().rev().fold(models, |models, matrix| matrix.mix_back(&models));
    }
    stretch
}

fn laws(graph: &dyn Graph, world: u32) -> Verdict {
    let rounds = graph.rounds_max(world);
    ensure!((rounds == 0) == (world == 1), "{rounds} rounds until all have heard of all");
    for round in 0..rounds.clamp(4, 12) {
        links_match_weights(graph, world, round).map_err(|law| format!("round {round}: {law}"))?;
    }
    let turn = graph.turn(world);
    ensure!(turn > 0, "a turn of no rounds");
    for round in 0..turn.min(4) {
        let same = |seat| {
            graph.weights(Seat(seat), world, round)
                == graph.weights(Seat(seat), world, round + turn)
        };
        ensure!((0..world).all(same), "round {round} is another after a turn of {turn}");
    }
    news_takes(graph, world, rounds)?;
    let before = random_models(world);
    let mut after = before.clone();
    for round in 0..rounds {
        after = Matrix::of(graph, world, round).mix(&after);
    }
    let scale = before.iter().map(|x| x.abs()).sum::<f64>();
    ensure!((mean(&before) - mean(&after)).abs() <= 1e-12 * scale, "mixing changes the mean");
    // The singular values of a large world take too long: there it is enough that the spread falls.
    let worst = if world <= 17 { shrinkage(graph, world, rounds) } else { 1.0 };
    ensure!(world == 1 || world > 17 || worst < 1.0 - 1e-9, "some models never come to the mean");
    let (wide, narrow) = (spread(&before), spread(&after));
    ensure!(
        world == 1 || narrow <= worst * (1.0 + 1e-6) * wide + 1e-12 * scale && narrow < wide,
        "the spread goes from {wide} to {narrow}, where a factor of {worst} is the worst"
    );
    Ok(())
}

/// One round: well-formed lists, sends that are what the others weigh, a doubly stochastic matrix, its cost.
fn links_match_weights(graph: &dyn Graph, world: u32, round: u64) -> Verdict {
    let mut sent = BTreeSet::new();
    let mut most = 0;
    for seat in (0..world).map(Seat) {
        let peers = graph.sends_to(seat, world, round);
        ensure!(peers == graph.sends_to(seat, world, round), "{seat}: other peers each time");
        ensure!(peers.windows(2).all(|pair| pair[0] < pair[1]), "{seat}: peers {peers:?}");
        ensure!(
            peers.iter().all(|peer| peer.0 < world && *peer != seat),
            "{seat}: peers {peers:?}"
        );
        most = most.max(peers.len());
        sent.extend(peers.into_iter().map(|peer| (seat, peer)));
    }
    let mut columns = vec![0.0; world as usize];
    let mut weighed = BTreeSet::new();
    for seat in (0..world).map(Seat) {
        let weights = graph.weights(seat, world, round);
        ensure!(weights.windows(2).all(|pair| pair[0].0 < pair[1].0), "{seat}: {weights:?}");
        ensure!(weights.iter().any(|&(source, _)| source == seat), "{seat} forgets itself");
        ensure!(weights.iter().all(|&(_, weight)| weight > 0.0), "{seat}: {weights:?}");
        let sum: f64 = weights.iter().map(|&(_, weight)| weight).sum();
        ensure!((sum - 1.0).abs() < 1e-12, "{seat}: weights sum to {sum}");
        for (source, weight) in weights {
            ensure!(source.0 < world, "{seat} weighs {source}");
            columns[source.index()] += weight;
            weighed.extend((source != seat).then_some((source, seat)));
        }
    }
    ensure!(sent == weighed, "what is sent is not what is weighed");
    let stochastic = columns.iter().all(|column| (column - 1.0).abs() < 1e-12);
    ensure!(stochastic, "columns sum to {columns:?}");
    let counted = Cost {
        rounds: u64::from(most > 0),
        bytes_sent_max: (most as u64 * BYTES) as f64,
        bytes_sent_total: (sent.len() as u64 * BYTES) as f64,
    };
    cost_is(graph.cost(world, BYTES), counted)
}

/// News of each seat spreads over all in exactly so many rounds: one bit for whom a seat has heard of.
fn news_takes(graph: &dyn Graph, world: u32, rounds: u64) -> Verdict {
    let words = world.div_ceil(64) as usize;
    let mut heard = vec![vec![0u64; words]; world as usize];
    heard.iter_mut().enumerate().for_each(|(seat, of)| of[seat / 64] |= 1 << (seat % 64));
    let all = |heard: &[Vec<u64>]| {
        let count = |of: &Vec<u64>| of.iter().map(|word| word.count_ones()).sum::<u32>();
        heard.iter().all(|of| count(of) == world)
    };
    for round in 0..rounds {
        ensure!(!all(&heard), "all have heard of all after {round} rounds instead of {rounds}");
        let before = heard.clone();
        for (seat, of) in before.iter().enumerate() {
            for peer in graph.sends_to(Seat(seat as u32), world, round) {
                let mine = heard[peer.index()].iter_mut();
                mine.zip(of).for_each(|(mine, theirs)| *mine |= theirs);
            }
        }
    }
    ensure!(all(&heard), "after {rounds} rounds not all have heard of all");
    Ok(())
}

/// The weights of one round, by the seat that mixes.
struct Matrix(Vec<Vec<(Seat, f64)>>);

impl Matrix {
    fn of(graph: &dyn Graph, world: u32, round: u64) -> Matrix {
        Matrix((0..world).map(|seat| graph.weights(Seat(seat), world, round)).collect())
    }

    fn mix(&self, models: &[f64]) -> Vec<f64> {
        let mixed = |row: &Vec<(Seat, f64)>| {
            row.iter().map(|&(source, weight)| weight * models[source.index()]).sum()
        };
        self.0.iter().map(mixed).collect()
    }

    fn mix_back(&self, models: &[f64]) -> Vec<f64> {
        let mut mixed = vec![0.0; models.len()];
        for (row, model) in self.0.iter().zip(models) {
            row.iter().for_each(|&(source, weight)| mixed[source.index()] += weight * model);
        }
        mixed
    }
}

fn random_models(world: u32) -> Vec<f64> {
    let mut rng = Rng::named(1, "models to mix", &[world.into()]);
    (0..world).map(|_| rng.normal()).collect()
}

fn mean(models: &[f64]) -> f64 {
    models.iter().sum::<f64>() / models.len() as f64
}

fn centre(models: &mut [f64]) {
    let mean = mean(models);
    models.iter_mut().for_each(|x| *x -= mean);
}

fn spread(models: &[f64]) -> f64 {
    let mean = mean(models);
    models.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>().sqrt()
}
