//! Consensus control, on a ring of models that is mixed here. It is told what the engine can tell it: a bound of the distance,
//! from how far a round has moved the models. The distance itself nobody knows but these tests.

use super::{START, build, descended, mean, square};
use starlings_consistency::{Blending, MixControl};
use starlings_core::Entry;
use starlings_testkit::conformance::blend::objectives;
use starlings_topology::{Form, TOPOLOGIES, lag};

/// Eight models on a ring.
struct Ring(Vec<Vec<f64>>);

impl Ring {
    fn mix(&mut self) {
        let n = self.0.len();
        let next = |i: usize| -> Vec<f64> {
            let (left, right) = (&self.0[(i + n - 1) % n], &self.0[(i + 1) % n]);
            let parts = self.0[i].iter().zip(left.iter().zip(right));
            parts.map(|(own, (left, right))| (own + left + right) / 3.0).collect()
        };
        self.0 = (0..n).map(next).collect();
    }

    /// Root mean square distance to the mean.
    fn distance(&self) -> f64 {
        let mean = mean(&self.0);
        (self.0.iter().map(|x| square(x, &mean)).sum::<f64>() / self.0.len() as f64).sqrt()
    }

    /// Steps of descent, mixed as the control says. Gives for each the rounds, the distance and the critical one.
    fn train(&mut self, control: &dyn MixControl, steps: u64) -> Vec<(u32, f64, f64)> {
        let objectives = objectives(self.0.len(), self.0[0].len(), 1.0);
        let lag = lag_of_ring(self.0.len() as u32);
        let (mut critical, mut log) = (0.0, Vec::new());
        for step in 0..steps {
            let before = self.0.clone();
            let walked = self.0.iter().zip(&objectives).map(|(x, f)| descended(f, x, 1));
            self.0 = walked.collect();
            let moves = before.iter().zip(&self.0).map(|(a, b)| square(a, b)).sum::<f64>();
            critical = control.critical((moves / before.len() as f64).sqrt(), critical);
            let (mut rounds, mut bound) = (0, f64::INFINITY);
            while control.again(step, rounds, bound, critical) {
                let before = self.0.clone();
                self.mix();
                rounds += 1;
                let moves = before.iter().zip(&self.0).map(|(a, b)| square(a, b)).sum::<f64>();
                bound = lag * (moves / before.len() as f64).sqrt();
            }
            log.push((rounds, self.distance(), critical));
        }
        log
    }
}

fn lag_of_ring(world: u32) -> f64 {
    let entry = Entry::find("topology", TOPOLOGIES, "averaging").expect("it is in the catalogue");
    let table = "graph = 'ring'".parse().expect("a table");
    let params = entry.check("topology", &table).expect("a graph that it has");
    match (entry.build)(&params).expect("a topology") {
        Form::Graph(ring) => lag(&*ring, world),
        _ => panic!("averaging is a graph"),
    }
}

fn control(params: &str) -> Box<dyn MixControl> {
    match build("consensus-control", params).blend {
        Blending::Mixing(control) => control,
        _ => panic!("consensus-control mixes"),
    }
}

#[test]
fn consensus_control_mixes_until_models_are_within_the_critical_distance() {
    let train_on =
        |world, params: &str| Ring(vec![START.to_vec(); world]).train(&*control(params), 40);
    for world in [8, 16] {
        let strict = train_on(world, "ratio = 0.1\nrounds_max = 400");
        for (step, (rounds, distance, critical)) in strict.iter().enumerate() {
            assert!(distance <= critical, "step {step}: {distance} over {critical} after {rounds}");
        }
    }
    let train = |params: &str| train_on(8, params);
    let strict = train("ratio = 0.1\nrounds_max = 100");
    assert!(strict.iter().all(|(rounds, ..)| *rounds > 1), "{strict:?}");
    let loose = train("ratio = 20.0\nrounds_max = 100");
    assert!(loose.iter().all(|(rounds, ..)| *rounds == 1), "{loose:?}");
    let limited = train("ratio = 0.1\nrounds_max = 2");
    assert!(limited.iter().all(|(rounds, ..)| *rounds <= 2));
    assert!(limited.iter().any(|(_, distance, critical)| distance > critical));
}

#[test]
fn the_critical_distance_follows_the_size_of_steps_with_a_memory() {
    let control = control("ratio = 0.5");
    let first = control.critical(4.0, 0.0);
    assert_eq!(first, 2.0);
    let mut critical = first;
    for _ in 0..10 {
        critical = control.critical(0.0, critical);
    }
    assert!((critical - 2.0 * 0.9f64.powi(10)).abs() < 1e-12, "{critical}");
    assert_eq!(control.critical(8.0, 2.0), 0.9 * 2.0 + (1.0 - 0.9) * 4.0);
}
