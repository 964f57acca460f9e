//! Gradients are the slopes of the loss: compared with central differences, for every kind of layer. In f32 a difference
//! has about three digits, which is enough to see a wrong sign, a missing term or a wrong factor; PyTorch's figures see
//! the rest.

use crate::own::MIXED;
use crate::world::{batch, contribution, f32s, facts, network, table};
use starlings_core::{Rng, Values};
use starlings_learn::Place;

const NETWORKS: &[(&str, &str, usize)] = &[
    ("mlp", "hidden = [4]\nactivation = 'tanh'", 3),
    ("mlp", "hidden = [4]\nactivation = 'gelu'\nnorm = 'layer-norm'\ntask = 'regression'", 1),
    ("mlp", "hidden = [4]\nactivation = 'silu'\nnorm = 'batch-norm'\nlabel_smoothing = 0.2", 2),
    ("mlp", "hidden = [6]\nactivation = 'sigmoid'\ndropout = 0.4", 2),
    ("cnn", "shape = [2, 4, 4]\nlayers = ['conv 3', 'tanh', 'average-pool 2']", 3),
    (
        "cnn",
        "shape = [2, 4, 4]\nlayers = ['conv 4', 'group-norm 2', 'gelu', 'global-average-pool']",
        2,
    ),
    ("cnn", "shape = [2, 4, 4]\nlayers = ['residual 3 stride 2', 'tanh']", 2),
    ("mlp", MIXED, 2),
];

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    for (name, settings, outputs) in NETWORKS {
        let learner = network(name, settings).unwrap();
        let mut rng = Rng::named(1, settings, &[]);
        let values = (0..12 * 32).map(|_| rng.normal() as f32).collect();
        let labels = (0..12).map(|row| match outputs {
            1 => rng.normal() as f32,
            classes => (row % classes) as f32,
        });
        let table = table(32, values, labels.collect());
        let batch = batch(&table, &[5, 7]);
        let mut model = learner.init(&facts(&table, *outputs), Place::WHOLE).unwrap();
        let update = contribution(&*learner, &model, &batch).unwrap();
        let names: Vec<String> = update.blocks.iter().map(|block| block.name.clone()).collect();
        for parameter in names.iter().filter(|name| !["loss", "rows"].contains(&name.as_str())) {
            if parameter.ends_with(".mean") || parameter.ends_with(".variance") {
                continue;
            }
            let gradient = f32s(&update, parameter).to_vec();
            let size = gradient.iter().fold(0.1f32, |most, x| most.max(x.abs()));
            for at in [0, gradient.len() / 2, gradient.len() - 1] {
                let mut loss = |shift: f32| {
                    let Some(Values::F32(weights)) =
                        model.get_mut(parameter).map(|tensor| &mut tensor.values)
                    else {
                        panic!("{parameter} is f32")
                    };
                    weights[at] += shift;
                    contribution(&*learner, &model, &batch).unwrap().f64("loss")[0]
                };
                let step = 2e-3;
                let (above, below) = (loss(step), loss(-2.0 * step));
                loss(step);
                let slope = ((above - below) / f64::from(2.0 * step)) as f32;
                let off = (slope - gradient[at]).abs() / size;
                assert!(
                    off < 0.02,
                    "{name} {settings}: {parameter}[{at}] {} {slope}",
                    gradient[at]
                );
            }
        }
    }
}
