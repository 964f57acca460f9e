//! Local averaging, block momentum, elastic averaging and DiLoCo, each against its paper's recurrence written by hand.
//! A recurrence takes the replicas' weights after H local steps and gives those after the exchange; what it remembers
//! is its own.

use super::{PERIOD, RATE, Replicas, START, WORLD, descended, local, mean};
use starlings_consistency::Blend;
use starlings_testkit::conformance::blend::{Flock, objectives};

/// What a paper says of an exchange, and what a job is left with after the last one.
trait Recurrence {
    fn exchange(&mut self, replicas: Replicas) -> Replicas;
    fn left(&self, replicas: Replicas) -> Vec<f64> {
        replicas[0].clone()
    }
}

/// McMahan et al., algorithm 1 with equal weights: w ← Σ wᵢ / K.
struct FederatedMean;

impl Recurrence for FederatedMean {
    fn exchange(&mut self, replicas: Replicas) -> Replicas {
        vec![mean(&replicas); WORLD]
    }
}

/// Chen and Huo: G(t) = W̄(t) − W_g(t−1), Δ(t) = ηΔ(t−1) + ζG(t), W(t) = W(t−1) + Δ(t), and
/// W_g(t) = W(t), or W(t) + ηΔ(t) in Nesterov's form.
struct Filter {
    global: Vec<f64>,
    start: Vec<f64>,
    delta: Vec<f64>,
    eta: f64,
    zeta: f64,
    nesterov: bool,
}

impl Filter {
    fn new(eta: f64, zeta: f64, nesterov: bool) -> Filter {
        let (global, start, delta) = (START.to_vec(), START.to_vec(), vec![0.0; START.len()]);
        Filter { global, start, delta, eta, zeta, nesterov }
    }
}

impl Recurrence for Filter {
    fn exchange(&mut self, replicas: Replicas) -> Replicas {
        for (k, mean) in mean(&replicas).into_iter().enumerate() {
            let g = mean - self.start[k];
            self.delta[k] = self.eta * self.delta[k] + self.zeta * g;
            self.global[k] += self.delta[k];
            let ahead = if self.nesterov { self.eta * self.delta[k] } else { 0.0 };
            self.start[k] = self.global[k] + ahead;
        }
        vec![self.start.clone(); WORLD]
    }

    fn left(&self, _replicas: Replicas) -> Vec<f64> {
        self.global.clone()
    }
}

/// Zhang, Choromanska and LeCun, algorithm 1 for all workers at once: xᵢ ← xᵢ − α(xᵢ − x̃), x̃ ← x̃ + α Σ(xᵢ − x̃).
struct Springs {
    centre: Vec<f64>,
    alpha: f64,
}

impl Recurrence for Springs {
    fn exchange(&mut self, mut replicas: Replicas) -> Replicas {
        for k in 0..START.len() {
            let centre = self.centre[k];
            let pull: f64 = replicas.iter().map(|x| x[k] - centre).sum();
            replicas.iter_mut().for_each(|x| x[k] -= self.alpha * (x[k] - centre));
            self.centre[k] += self.alpha * pull;
        }
        replicas
    }

    fn left(&self, _replicas: Replicas) -> Vec<f64> {
        self.centre.clone()
    }
}

/// Douillard et al., algorithm 1, with the outer optimiser as PyTorch writes it: g = mean(θ − θᵢ), m ← μm + g,
/// θ ← θ − ν(g + μm).
struct Outer {
    theta: Vec<f64>,
    momentum: Vec<f64>,
    mu: f64,
    nu: f64,
}

impl Recurrence for Outer {
    fn exchange(&mut self, replicas: Replicas) -> Replicas {
        for (k, mean) in mean(&replicas).into_iter().enumerate() {
            let g = self.theta[k] - mean;
            self.momentum[k] = self.mu * self.momentum[k] + g;
            self.theta[k] -= self.nu * (g + self.mu * self.momentum[k]);
        }
        vec![self.theta.clone(); WORLD]
    }
}

/// The weights of all replicas after each of six exchanges, and what is left at the end.
pub(super) type Path = (Vec<Replicas>, Vec<f64>);
const EXCHANGES: usize = 6;

fn expected(mut recurrence: Box<dyn Recurrence>) -> Path {
    let objectives = objectives(WORLD, START.len(), 1.0);
    let mut replicas = vec![START.to_vec(); WORLD];
    let mut path = Vec::new();
    for _ in 0..EXCHANGES {
        let walked = replicas.iter().zip(&objectives).map(|(x, f)| descended(f, x, PERIOD));
        replicas = recurrence.exchange(walked.collect());
        path.push(replicas.clone());
    }
    let left = recurrence.left(replicas);
    (path, left)
}

pub(super) fn walked(blend: &dyn Blend) -> Path {
    let mut flock = Flock::new(blend, objectives(WORLD, START.len(), 1.0), &START, RATE);
    let mut path = Vec::new();
    for step in 1..=EXCHANGES as u64 * u64::from(PERIOD) {
        flock.step(blend).expect("lawful");
        if step % u64::from(PERIOD) == 0 {
            path.push(flock.models.iter().map(|model| model.f64("weights").to_vec()).collect());
        }
    }
    flock.exchange(blend, true).expect("lawful");
    assert!(flock.agrees());
    (path, flock.models[0].f64("weights").to_vec())
}

pub(super) fn same(a: &Path, b: &Path) -> bool {
    let flat = |path: &Path| -> Vec<f64> {
        path.0.iter().flatten().flatten().chain(&path.1).copied().collect()
    };
    let pairs = flat(a).into_iter().zip(flat(b));
    pairs.fold(true, |same, (a, b)| same && (a - b).abs() < 1e-12)
}

#[test]
fn each_blend_follows_the_equations_of_its_paper_and_no_other() {
    let filter =
        |eta, zeta, nesterov| -> Box<dyn Recurrence> { Box::new(Filter::new(eta, zeta, nesterov)) };
    let springs =
        |alpha| -> Box<dyn Recurrence> { Box::new(Springs { centre: START.to_vec(), alpha }) };
    let outer = |mu, nu| -> Box<dyn Recurrence> {
        Box::new(Outer { theta: START.to_vec(), momentum: vec![0.0; START.len()], mu, nu })
    };
    let cases = [
        ("local", "", expected(Box::new(FederatedMean))),
        ("block-momentum", "", expected(filter(1.0 - 1.0 / WORLD as f64, 1.0, false))),
        ("block-momentum", "momentum = 0.6\nrate = 0.8", expected(filter(0.6, 0.8, false))),
        ("block-momentum", "nesterov = true", expected(filter(0.75, 1.0, true))),
        ("elastic-averaging", "", expected(springs(0.9 / WORLD as f64))),
        ("elastic-averaging", "alpha = 0.1", expected(springs(0.1))),
        ("diloco", "", expected(outer(0.9, 0.7))),
        ("diloco", "outer_momentum = 0.3\nouter_rate = 1.1", expected(outer(0.3, 1.1))),
    ];
    for (name, params, _) in &cases {
        let blend = local(name, &format!("steps = {PERIOD}\n{params}"));
        let found = walked(&*blend);
        for (other, theirs, path) in &cases {
            let is_own = (name, params) == (other, theirs);
            assert_eq!(same(&found, path), is_own, "{name} {params} by {other} {theirs}");
        }
    }
}

#[test]
fn nesterov_block_momentum_and_diloco_walk_alike_and_end_apart() {
    let period = format!("steps = {PERIOD}");
    let filter = format!("{period}\nnesterov = true\nmomentum = 0.6\nrate = 0.8");
    let outer = format!("{period}\nouter_momentum = 0.6\nouter_rate = 0.8");
    let (filter, outer) =
        (walked(&*local("block-momentum", &filter)), walked(&*local("diloco", &outer)));
    assert!(same(&(filter.0.clone(), outer.1.clone()), &outer));
    assert!(!same(&filter, &outer));
}

#[test]
fn replicas_of_elastic_averaging_stay_apart_and_those_of_the_others_do_not() {
    for (name, spread) in [
        ("local", false),
        ("block-momentum", false),
        ("diloco", false),
        ("elastic-averaging", true),
    ] {
        let path = walked(&*local(name, &format!("steps = {PERIOD}"))).0;
        assert_eq!(path[2][0] != path[2][3], spread, "{name}");
    }
}

#[test]
fn a_blend_exchanges_once_in_its_period_and_at_the_end() {
    for name in ["local", "block-momentum", "diloco", "elastic-averaging"] {
        let blend = local(name, "steps = 5");
        let mut flock = Flock::new(&*blend, objectives(3, 3, 1.0), &START, RATE);
        (0..17).for_each(|_| flock.step(&*blend).unwrap());
        flock.exchange(&*blend, true).unwrap();
        assert_eq!(flock.exchanges, [5, 10, 15, 17], "{name}");
        // Deltas of weights and narrow each time; at the end the tally, the clock and the momentum too.
        assert_eq!(flock.bytes, 3 * (4 * (3 * 8 + 3 * 4) + 2 * 8 + 2 * 8 + 3 * 8), "{name}");
    }
}

#[test]
fn integers_and_state_are_averaged_at_the_end_and_are_their_workers_own_before() {
    let blend = local("local", "steps = 2");
    let mut flock = Flock::new(&*blend, objectives(3, 3, 1.0), &START, RATE);
    (0..4).for_each(|_| flock.step(&*blend).unwrap());
    let clocks: Vec<i64> = flock.models.iter().map(|m| m.i64("weights.clock")[0]).collect();
    assert_eq!(clocks, [4, 8, 12]);
    let momentum: f64 = flock.models.iter().map(|m| m.f64("weights.momentum")[1]).sum();
    flock.exchange(&*blend, true).unwrap();
    assert_eq!(flock.models[0].i64("weights.clock"), [8, 8]);
    assert_eq!(flock.models[0].i64("tally"), [i64::MAX - 40_000 + 20, i64::MAX - 40_000]);
    assert!((flock.models[0].f64("weights.momentum")[1] - momentum / 3.0).abs() < 1e-12);
}
