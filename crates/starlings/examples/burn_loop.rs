//! A network and a training loop of one's own, written with Burn: `burn_loop_alone.rs` trains in one process,
//! `burn_loop.rs` in three, and `diff` of the two shows what that takes. Both end with the same weights.
//!
//! `cargo run --release -p starlings --example burn_loop_alone`, then `--example burn_loop`

#![expect(clippy::print_stdout, reason = "an example speaks to people")]

use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig, Tanh};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Tensor, TensorData};
use std::error::Error;
use std::ops::Range;

const STEPS: u64 = 60;
const BATCH: u64 = 64;

/// Two numbers in, one out.
#[derive(Module, Debug)]
struct Network {
    hidden: Linear,
    tanh: Tanh,
    output: Linear,
}

impl Network {
    fn new(device: &Device) -> Network {
        Network {
            hidden: LinearConfig::new(2, 16).init(device),
            tanh: Tanh::new(),
            output: LinearConfig::new(16, 1).init(device),
        }
    }

    fn forward(&self, rows: Tensor<2>) -> Tensor<2> {
        self.output.forward(self.tanh.forward(self.hidden.forward(rows)))
    }
}

/// Some rows of a step's batch: points of the plane, and the product of their coordinates.
fn batch(step: u64, rows: Range<u64>, device: &Device) -> (Tensor<2>, Tensor<2>) {
    let count = (rows.end - rows.start) as usize;
    let coordinate =
        |row: u64, stride: u64| ((step * BATCH + row) * stride % 101) as f32 / 50.0 - 1.0;
    let points: Vec<[f32; 2]> =
        rows.map(|row| [coordinate(row, 37), coordinate(row, 53)]).collect();
    let products = points.iter().map(|[x, y]| x * y).collect();
    let inputs = Tensor::from_data(TensorData::new(points.concat(), [count, 2]), device);
    (inputs, Tensor::from_data(TensorData::new(products, [count, 1]), device))
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(mut flock) = starlings::launch(3)? else { return Ok(()) };
    let device = Device::flex().autodiff();
    device.seed(7);
    let mut model = flock.broadcast_weights(Network::new(&device))?;
    let mut optimiser = AdamConfig::new().init();
    for step in 0..STEPS {
        let (inputs, targets) = batch(step, flock.lease_rows(BATCH), &device);
        let outputs = model.forward(inputs.clone());
        let loss = MseLoss::new().forward(outputs, targets, Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradients = flock.mean_gradients(gradients, &model, inputs.dims()[0])?;
        model = optimiser.step(0.01, model, gradients);
    }
    println!("{:?}", model.hidden.weight.val().try_into_vec_as::<f32>()?);
    flock.leave()?;
    Ok(())
}
