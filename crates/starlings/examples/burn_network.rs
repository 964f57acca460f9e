//! A network of one's own, written with Burn, as the learner of a job: workers, topology, codec and the rest are words of the
//! job as for any other learner.
//!
//! `cargo run --release -p starlings --example burn_network`, or with changes: `… -- cluster.workers=1 cluster.codec=half`

#![expect(clippy::print_stdout, reason = "an example speaks to people")]

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, activation};
use starlings::{Job, OwnNetwork, Result, Surroundings, TrainOptions, own_network};

const JOB: &str = "
[data]
train = 'digits'
test = 'digits:test'
label = 'class'

[[prepare]]
name = 'scale'
kind = 'max-abs'

[learner]
name = 'gated'
solver = 'adam'
learning_rate = 0.005

[train]
seed = 1
epochs = 4
batch = 64

[cluster]
workers = 2
launcher = 'processes'
";

/// One hidden layer whose numbers are let through by gates.
#[derive(Module, Debug)]
struct Gated {
    gates: Linear,
    values: Linear,
    dropout: Dropout,
    output: Linear,
}

impl OwnNetwork for Gated {
    fn build(features: usize, outputs: usize, device: &Device) -> Gated {
        Gated {
            gates: LinearConfig::new(features, 64).init(device),
            values: LinearConfig::new(features, 64).init(device),
            dropout: DropoutConfig::new(0.0).init(),
            output: LinearConfig::new(64, outputs).init(device),
        }
    }

    fn forward(&self, rows: Tensor<2>) -> Tensor<2> {
        let gates = activation::sigmoid(self.gates.forward(rows.clone()));
        self.output.forward(self.dropout.forward(gates * self.values.forward(rows)))
    }
}

fn main() -> Result<()> {
    starlings::register(own_network::<Gated>("gated", "Classes by one layer with gates"))?;
    if starlings::serve_if_worker()? {
        return Ok(());
    }
    let changes: Vec<String> = std::env::args().skip(1).collect();
    let job = Job::parse(JOB, &changes, &Surroundings { folder: ".".into(), cores: 2 })?;
    // Workers are this program, too: it knows the network.
    let program = Some(std::env::current_exe()?);
    let trained = starlings::train(job, TrainOptions { program, ..TrainOptions::default() })?;
    let accuracy = trained.report.evaluation.get("accuracy").copied().unwrap_or_default();
    println!("objective {:.6}, accuracy {accuracy:.3}", trained.report.objective);
    Ok(())
}
