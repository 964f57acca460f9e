//! The optimiser's step on the parameters of a network: the functions of `starlings_learn::optimisers` on f32, and Muon.
//! All but LAMB and Muon work number by number, so that an owner of some rows can take their step alone.

use crate::applying::Slopes;
use crate::muon::{self, Muon};
use crate::stage::{Care, Parameter};
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{Fault, Kind, Model, Params, Result, Role, Tensor, Values};
use starlings_learn::optimisers::adam::{Adam, Means};
use starlings_learn::optimisers::fading::faded;
use starlings_learn::optimisers::momentum::Momentum;
use starlings_learn::optimisers::rmsprop::RmsProp;
use starlings_learn::optimisers::{Real, adagrad, adam, adamw, lamb, nesterov, rmsprop, sgd};
use std::ops::Range;

/// All names, with the learning rate that each takes by itself.
pub(crate) const NAMES: [(&str, f64); 9] = [
    ("sgd", 0.05),
    ("momentum", 0.01),
    ("nesterov", 0.01),
    ("adagrad", 0.01),
    ("rmsprop", 0.001),
    ("adam", 0.001),
    ("adamw", 0.001),
    ("lamb", 0.005),
    ("muon", 0.001),
];

/// What stays of the velocity unless the job says so: Muon's is longer than the others', as its author has it.
const MOMENTUM: f64 = 0.9;
const MOMENTUM_OF_MUON: f64 = 0.95;

/// Which optimiser.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Sgd,
    Momentum,
    Nesterov,
    AdaGrad,
    RmsProp,
    Adam,
    AdamW,
    Lamb,
    Muon,
}

/// An optimiser with its constants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Solver {
    pub(crate) method: Method,
    pub(crate) rate: f64,
    pub(crate) decay: f64,
    momentum: f64,
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    rho: f64,
}

/// What a step on some parameter needs besides its numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride {
    /// The rate of this step.
    pub(crate) rate: f64,
    /// What sums of gradients are multiplied by to make them means, and short enough.
    pub(crate) scale: f32,
    /// Steps taken, this one included.
    pub(crate) count: i64,
}

/// Numbers that are worked on at once: they stay in the nearest cache.
const CHUNK: usize = 2048;

impl Solver {
    /// From a job's parameters.
    ///
    /// # Errors
    /// A momentum below zero.
    pub(crate) fn of(params: &Params) -> Result<Solver> {
        let name = params.text("solver");
        let at = NAMES.iter().position(|(known, _)| *known == name).unwrap_or(0);
        let method = [
            Method::Sgd,
            Method::Momentum,
            Method::Nesterov,
            Method::AdaGrad,
            Method::RmsProp,
            Method::Adam,
            Method::AdamW,
            Method::Lamb,
            Method::Muon,
        ][at];
        let given = params.f64("learning_rate");
        let usual = if method == Method::Muon { MOMENTUM_OF_MUON } else { MOMENTUM };
        let momentum = match params.f64("momentum") {
            -1.0 => usual,
            momentum if momentum >= 0.0 => momentum,
            momentum => {
                return Err(Fault::caller(format!("momentum = {momentum} is below 0"))
                    .hint(format!("choose 0 to 1, or leave it out for {usual}")));
            }
        };
        Ok(Solver {
            method,
            rate: if given > 0.0 { given } else { NAMES[at].1 },
            decay: params.f64("weight_decay"),
            momentum,
            beta1: params.f64("beta1"),
            beta2: params.f64("beta2"),
            epsilon: params.f64("epsilon"),
            rho: params.f64("rho"),
        })
    }

    /// Whether steps can be taken number by number.
    pub(crate) fn is_row_wise(&self) -> bool {
        !matches!(self.method, Method::Lamb | Method::Muon)
    }

    /// Whether Muon makes its step orthogonal: matrices between hidden numbers. Embeddings, the layer that gives the outputs,
    /// biases and scales take AdamW's (Jordan et al., 2024).
    fn is_orthogonal(&self, parameter: &Parameter) -> bool {
        self.method == Method::Muon && parameter.care == Care::Matrix
    }

    /// The endings of the names of a parameter's state: velocity or mean gradient, then squares.
    fn state(&self, parameter: &Parameter) -> [Option<&'static str>; 2] {
        match self.method {
            _ if !parameter.care.learns() => [None, None],
            Method::Sgd => [None, None],
            Method::Momentum | Method::Nesterov => [Some("velocity"), None],
            Method::AdaGrad | Method::RmsProp => [None, Some("squares")],
            Method::Muon if self.is_orthogonal(parameter) => [Some("velocity"), None],
            Method::Adam | Method::AdamW | Method::Lamb | Method::Muon => [Some("m"), Some("v")],
        }
    }

    /// How many numbers of state each number of a parameter has.
    pub(crate) fn states(&self, parameter: &Parameter) -> usize {
        self.state(parameter).iter().flatten().count()
    }

    /// Adds the state of a parameter to a model.
    pub(crate) fn init(&self, model: &mut Model, parameter: &Parameter) {
        for ending in self.state(parameter).into_iter().flatten() {
            let zeros = Tensor::zeros(Kind::F32, &parameter.shape, Role::State);
            model.set(format!("{}.{ending}", parameter.name), zeros);
        }
    }

    /// One step on some consecutive numbers of a parameter, given the sum of their gradients. Says whether they are still
    /// finite.
    pub(crate) fn step(
        &self,
        model: &mut Model,
        parameter: &Parameter,
        (range, sums): (Range<usize>, Slopes<'_>),
        stride: Stride,
    ) -> bool {
        let name = |ending: &str| [parameter.name.as_str(), ".", ending].concat();
        let names = self.state(parameter).map(|ending| ending.map(name));
        let mut held = Held::take(model, parameter, &names);
        let decay = if parameter.care.decays() { self.decay } else { 0.0 };
        let [mut made, mut room] = [0; 2].map(|_| Vec::with_capacity(CHUNK));
        let finite = if self.method == Method::Lamb || self.is_orthogonal(parameter) {
            self.whole(&mut held, parameter, sums.some(0..range.len(), &mut made), stride)
        } else {
            let vectors = Arch::new();
            let mut finite = true;
            for at in (0..range.len()).step_by(CHUNK) {
                let some = at..range.len().min(at + CHUNK);
                let part = held.part(range.start + some.start..range.start + some.end);
                let sums = sums.some(some, &mut made);
                let (solver, room) = (self, &mut room);
                finite &= vectors.dispatch(Chunk { solver, part, sums, decay, stride, room });
            }
            finite
        };
        held.put_back(model, parameter, &names);
        finite
    }

    #[inline(always)]
    fn chunk(
        &self,
        part: Part<'_>,
        sums: &[f32],
        (decay, stride): (f64, Stride),
        room: &mut Vec<f32>,
    ) -> bool {
        let Stride { rate, scale, count } = stride;
        let Part { weights, first, second } = part;
        // AdamW's decay (and that of Muon's vectors) is beside the gradient, not in it.
        let beside = matches!(self.method, Method::AdamW | Method::Muon);
        let inside = if beside { 0.0 } else { decay as f32 };
        if self.method == Method::Momentum {
            let pace = [rate as f32, self.momentum as f32];
            return rolled(pace, [scale, inside], (weights, first), sums);
        }
        room.resize(sums.len(), 0.0);
        for ((room, g), w) in room.iter_mut().zip(sums).zip(&*weights) {
            *room = g * scale + inside * w;
        }
        let gradient = &room[..];
        let options = Adam { rate, beta1: self.beta1, beta2: self.beta2, epsilon: self.epsilon };
        match self.method {
            Method::Sgd => sgd::step(rate, weights, gradient),
            Method::Momentum => unreachable!("made on the way, above"),
            Method::Nesterov => {
                let pace = Momentum { rate, momentum: self.momentum };
                nesterov::step(pace, weights, gradient, first);
            }
            Method::AdaGrad => adagrad::step((rate, self.epsilon), weights, gradient, second),
            Method::RmsProp => {
                let options = RmsProp { rate, keep: self.rho, epsilon: self.epsilon };
                rmsprop::step(options, weights, gradient, second);
            }
            Method::Adam => {
                adam::step(options, count, weights, gradient, Means { first, second });
            }
            Method::AdamW | Method::Muon | Method::Lamb => {
                let means = Means { first, second };
                adamw::step((options, decay), count, weights, gradient, means);
            }
        }
        are_finite(weights)
    }

    /// Methods that measure a whole parameter.
    fn whole(&self, held: &mut Held, parameter: &Parameter, sums: &[f32], stride: Stride) -> bool {
        let Stride { rate, scale, count } = stride;
        let gradient: Vec<f32> = sums.iter().map(|g| g * scale).collect();
        let Held { weights, first, second } = held;
        match (self.method, parameter.care) {
            (Method::Muon, _) => {
                let options = Muon { rate, momentum: self.momentum, decay: self.decay };
                let rows = parameter.shape.first().copied().unwrap_or(1);
                muon::step(options, rows, weights, &gradient, first);
            }
            (_, care) => {
                let options =
                    Adam { rate, beta1: self.beta1, beta2: self.beta2, epsilon: self.epsilon };
                let means = Means { first: &mut first[..], second: &mut second[..] };
                match care {
                    // Biases are not measured, as in the paper: they take Adam's step.
                    Care::Vector => adam::step(options, count, weights, &gradient, means),
                    _ => lamb::step((options, self.decay), count, weights, &gradient, means),
                }
            }
        }
        all_finite(weights)
    }
}

/// Some numbers' step on wide vectors: the same operations, so that no bit depends on them. A closure would not do: it is
/// compiled for the narrow vectors that every processor has.
struct Chunk<'a> {
    solver: &'a Solver,
    part: Part<'a>,
    sums: &'a [f32],
    decay: f64,
    stride: Stride,
    room: &'a mut Vec<f32>,
}

impl WithSimd for Chunk<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        self.solver.chunk(self.part, self.sums, (self.decay, self.stride), self.room)
    }
}

/// A parameter and its state, out of the model so that all can change at once.
struct Held {
    weights: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
}

/// Some consecutive numbers of them.
struct Part<'a> {
    weights: &'a mut [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Held {
    fn take(model: &mut Model, parameter: &Parameter, names: &[Option<String>; 2]) -> Held {
        let mut take = |name: &str| std::mem::take(f32s_mut(model, name));
        let weights = take(&parameter.name);
        let [first, second] = names.each_ref().map(|name| name.as_deref().map(&mut take));
        Held { weights, first: first.unwrap_or_default(), second: second.unwrap_or_default() }
    }

    fn part(&mut self, range: Range<usize>) -> Part<'_> {
        let cut = |len: usize| range.start.min(len)..range.end.min(len);
        let (first, second) = (cut(self.first.len()), cut(self.second.len()));
        Part {
            weights: &mut self.weights[range.clone()],
            first: &mut self.first[first],
            second: &mut self.second[second],
        }
    }

    fn put_back(self, model: &mut Model, parameter: &Parameter, names: &[Option<String>; 2]) {
        *f32s_mut(model, &parameter.name) = self.weights;
        for (name, values) in names.iter().zip([self.first, self.second]) {
            if let Some(name) = name {
                *f32s_mut(model, name) = values;
            }
        }
    }
}

/// The numbers of a parameter of a model, to change.
pub(crate) fn f32s_mut<'a>(model: &'a mut Model, name: &str) -> &'a mut Vec<f32> {
    match model.get_mut(name).map(|tensor| &mut tensor.values) {
        Some(Values::F32(values)) => values,
        _ => panic!("the model has no f32 tensor '{name}'"),
    }
}

/// Whether every number is finite.
pub(crate) fn all_finite(values: &[f32]) -> bool {
    Arch::new().dispatch(Finite(values))
}

/// The same on wide vectors.
struct Finite<'a>(&'a [f32]);

impl WithSimd for Finite<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        are_finite(self.0)
    }
}

/// `momentum::step` with the gradient made on the way, so that each number is touched once: it is bound by memory. The same
/// operations in the same order, and the same bits. Says whether weights are still finite.
#[inline(always)]
fn rolled(
    [rate, momentum]: [f32; 2],
    [scale, decay]: [f32; 2],
    (weights, velocity): (&mut [f32], &mut [f32]),
    sums: &[f32],
) -> bool {
    let mut most = 0;
    for ((weight, sum), speed) in weights.iter_mut().zip(sums).zip(velocity) {
        let slope = sum * scale + decay * *weight;
        *speed = faded(momentum * *speed + slope, f32::FAINT);
        *weight -= rate * *speed;
        most = most.max(weight.to_bits() & EXPONENT);
    }
    most < EXPONENT
}

/// The bits of a number's exponent: all are set in what is not finite.
const EXPONENT: u32 = 0x7f80_0000;

/// Exponents are compared as integers: a sum of floats would be slower.
#[inline(always)]
fn are_finite(values: &[f32]) -> bool {
    values.iter().fold(0, |most, value| most.max(value.to_bits() & EXPONENT)) < EXPONENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_learn::optimisers::momentum;

    #[test]
    fn a_step_made_on_the_way_has_the_bits_of_the_optimiser() {
        let made = |seed: u32| -> Vec<f32> {
            (0..100_u32).map(|at| ((at * 7919 + seed) % 89) as f32 / 31.0 - 1.4).collect()
        };
        let (mut weights, mut velocity, sums) = (made(1), made(2), made(3));
        let (mut other, mut speed) = (weights.clone(), velocity.clone());
        let gradient: Vec<f32> =
            sums.iter().zip(&other).map(|(sum, weight)| sum * 0.3 + 0.01 * weight).collect();
        let pace = Momentum { rate: 0.07, momentum: 0.9 };
        momentum::step(pace, &mut other, &gradient, &mut speed);
        assert!(rolled([0.07, 0.9], [0.3, 0.01], (&mut weights, &mut velocity), &sums));
        assert_eq!((&weights, &velocity), (&other, &speed));
        // What has almost come to rest fades alike.
        let faint: Vec<f32> = (0..100).map(|at| f32::FAINT * (at as f32 / 31.0 - 1.4)).collect();
        let (mut velocity, mut speed, zeros) = (faint.clone(), faint, vec![0.0; 100]);
        momentum::step(pace, &mut other, &zeros, &mut speed);
        assert!(rolled([0.07, 0.9], [0.3, 0.0], (&mut weights, &mut velocity), &zeros));
        assert_eq!((&weights, &velocity), (&other, &speed));
        assert!((1..100).contains(&speed.iter().filter(|speed| **speed == 0.0).count()));
        let mut large = vec![f32::MAX; 100];
        assert!(!rolled([0.07, 0.9], [f32::MAX, 0.0], (&mut weights, &mut large), &sums));
    }
    fn solver(settings: &str) -> Result<Solver> {
        let entry = crate::NETWORKS.iter().find(|entry| entry.name == "mlp").expect("there is one");
        Solver::of(&entry.check("learner", &settings.parse().unwrap())?)
    }

    fn matrix(shape: &[usize], care: Care) -> Parameter {
        let start = crate::stage::Start::fan_in(shape[0]);
        Parameter { name: "it".to_string(), shape: shape.to_vec(), start, care }
    }

    /// Three steps of `torch.optim.Muon` in doubles, from bench/references/nn.json. Its velocity is a mean of gradients and
    /// ours a sum: the same but for a factor, which making it orthogonal takes away.
    #[test]
    fn muon_takes_the_steps_of_torch() {
        let text = include_str!("../../../bench/references/nn.json");
        let figures: serde_json::Value = serde_json::from_str(text).unwrap();
        let numbers = |value: &serde_json::Value| -> Vec<f32> {
            value.as_array().unwrap().iter().map(|it| it.as_f64().unwrap() as f32).collect()
        };
        let settings = "solver = 'muon'\nlearning_rate = 0.02\nmomentum = 0.8\nweight_decay = 0.1";
        let solver = solver(settings).unwrap();
        for case in figures["muon"].as_array().unwrap() {
            let shape: Vec<usize> = numbers(&case["shape"]).iter().map(|&it| it as usize).collect();
            let parameter = matrix(&shape, Care::Matrix);
            let mut model = Model::new();
            let values = Values::F32(numbers(&case["start"]));
            model.set("it", Tensor { shape: shape.clone(), values, role: Role::Weight });
            solver.init(&mut model, &parameter);
            for (count, gradient) in (1..).zip(case["gradients"].as_array().unwrap()) {
                let gradient = numbers(gradient);
                let stride = Stride { rate: solver.rate, scale: 1.0, count };
                let run = (0..gradient.len(), Slopes::There(&gradient));
                assert!(solver.step(&mut model, &parameter, run, stride));
            }
            let far = f32s_mut(&mut model, "it").iter().zip(numbers(&case["end"]));
            let far = far.map(|(found, wanted)| (found - wanted).abs()).fold(0.0, f32::max);
            assert!(far < 2e-5, "{shape:?}: {far}");
        }
    }

    #[test]
    fn momentum_is_what_the_job_says_and_else_the_solvers_own() {
        let of = |settings: &str| solver(settings).unwrap().momentum;
        assert_eq!(of("solver = 'muon'"), 0.95);
        assert_eq!(of("solver = 'muon'\nmomentum = 0.5"), 0.5);
        assert_eq!(of("solver = 'momentum'"), 0.9);
        assert_eq!(of("solver = 'nesterov'\nmomentum = 0.0"), 0.0);
        assert!(solver("solver = 'muon'\nmomentum = -0.5").is_err());
    }

    /// Hidden matrices alone: the layer that gives the outputs, embeddings and biases have AdamW's state.
    #[test]
    fn muon_leaves_outputs_and_embeddings_to_adamw() {
        let solver = solver("solver = 'muon'").unwrap();
        let lines = ["embedding 9 4", "linear 6", "relu", "linear 2"].map(str::to_string);
        let stack =
            crate::stack::Stack::build(crate::flow::Form::Flat(3), &lines).unwrap().closed();
        let of = |name: &str| {
            let parameter = stack.parameters().iter().find(|it| it.name == name).unwrap();
            solver.state(parameter)
        };
        let adamw = [Some("m"), Some("v")];
        assert_eq!(of("01-linear.weight"), [Some("velocity"), None]);
        assert_eq!([of("00-embedding.weight"), of("03-linear.weight")], [adamw, adamw]);
        assert_eq!(of("01-linear.bias"), adamw);
    }
}
