//! Convolution of images and its gradients, as products of patches and weights (`tile.rs`), image after image: what is in
//! work fits the second cache. Patches are not written down (direct convolution: Zhang, Franchetti and Low, "High
//! performance zero-memory overhead direct convolutions", 2018), and what follows (a rectifier, windows) is done before
//! the output leaves.
//!
//! Cost: outputs · points · numbers of a patch multiplications forward, twice as many back; floating-point units bind.

use super::geometry::{Geometry, Patches, Take};
use super::tile::{Multiply, Outer, Panels, Spread};
use super::window::{Enter, Finish, Leave, Windows};
use pulp::Arch;

/// What comes out of a convolution.
pub(crate) struct Output {
    /// Image after image, channel after channel.
    pub(crate) numbers: Vec<f32>,
    /// Which place of its window each number is from; empty where nothing follows.
    pub(crate) chosen: Vec<u8>,
}

/// Gradients of a convolution.
pub(crate) struct Gradients {
    /// Of the weights.
    pub(crate) weight: Vec<f32>,
    /// Of the biases.
    pub(crate) bias: Vec<f32>,
    /// Of the images; empty if nobody asks.
    pub(crate) input: Vec<f32>,
}

/// Convolves images with weights (outputs × channels × height × width) and does what follows.
pub(crate) fn forward(
    (geometry, finish): (Geometry, Finish),
    images: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
) -> Output {
    let (points, panels) = (geometry.points(), Panels::of(geometry.outputs));
    let (patch, width) = (geometry.patch(), panels.width);
    let packed = packed(&geometry, panels, weight);
    let mut first = vec![0.0; panels.numbers()];
    first.iter_mut().zip(bias.unwrap_or_default()).for_each(|(first, bias)| *first = *bias);
    let windows = Windows::new(finish, geometry.output());
    let (count, len) = (images.len() / geometry.image(), windows.count());
    let mut numbers = vec![0.0; count * geometry.outputs * len];
    let mut chosen = match finish == Finish::NONE {
        true => Vec::new(),
        false => vec![0; count * len * panels.numbers()],
    };
    let mut patches = Patches::new(geometry);
    let (mut sums, mut kept) = (vec![0.0; points * width], vec![0.0; len * width]);
    let vectors = Arch::new();
    let mut all_chosen = chosen.chunks_exact_mut((len * width).max(1));
    let whole = geometry.outputs * len;
    for (image, into) in
        images.chunks_exact(geometry.image()).zip(numbers.chunks_exact_mut(whole.max(1)))
    {
        vectors.dispatch(Take { patches: &mut patches, image });
        for (panel, into) in into.chunks_mut((width * len).max(1)).enumerate() {
            vectors.dispatch(Multiply {
                left: patches.runs(),
                panel: &packed[panel * patch * width..][..patch * width],
                first: &first[panel * width..][..width],
                into: &mut sums,
            });
            vectors.dispatch(Leave {
                windows: &windows,
                width,
                rectifies: finish.rectifies,
                sums: &sums,
                kept: &mut kept,
                chosen: all_chosen.next(),
                into,
            });
        }
    }
    Output { numbers, chosen }
}

/// What a backward pass knows.
pub(crate) struct Known<'a> {
    /// The images that went in.
    pub(crate) images: &'a [f32],
    /// The weights.
    pub(crate) weight: &'a [f32],
    /// As [`Output`] has it.
    pub(crate) chosen: &'a [u8],
    /// Whether the gradient of the images is asked for.
    pub(crate) asks_input: bool,
}

/// The gradients of weights, biases and images from that of the output.
pub(crate) fn backward(
    (geometry, finish): (Geometry, Finish),
    known: &Known<'_>,
    gradient: &[f32],
) -> Gradients {
    let (points, panels) = (geometry.points(), Panels::of(geometry.outputs));
    let (patch, width) = (geometry.patch(), panels.width);
    let windows = Windows::new(finish, geometry.output());
    let (image, len) = (geometry.image(), windows.count());
    let mut weight = vec![0.0; patch * panels.numbers()];
    let mut bias = vec![0.0; panels.numbers()];
    let mut patches = Patches::new(geometry);
    let mut back = known.asks_input.then(|| Back::new(geometry, panels, known.weight));
    let mut input = vec![0.0; if known.asks_input { known.images.len() } else { 0 }];
    let mut inputs = input.chunks_exact_mut(image);
    let (mut above, mut kept) = (vec![0.0; points * width], vec![0.0; len * width]);
    let vectors = Arch::new();
    let mut all_chosen = known.chosen.chunks_exact((len * width).max(1));
    let whole = (geometry.outputs * len).max(1);
    for (image, gradient) in known.images.chunks_exact(image).zip(gradient.chunks_exact(whole)) {
        vectors.dispatch(Take { patches: &mut patches, image });
        for (panel, gradient) in gradient.chunks((width * len).max(1)).enumerate() {
            vectors.dispatch(Enter {
                windows: &windows,
                width,
                gradient,
                kept: &mut kept,
                chosen: all_chosen.next(),
                into: &mut above,
                bias: &mut bias[panel * width..][..width],
            });
            vectors.dispatch(Outer {
                left: patches.runs(),
                right: &above,
                width,
                into: &mut weight[panel * patch * width..][..patch * width],
            });
            if let Some(back) = &mut back {
                back.add(panel, &above);
            }
        }
        if let (Some(back), Some(input)) = (&mut back, inputs.next()) {
            back.put(input);
        }
    }
    bias.truncate(geometry.outputs);
    Gradients { weight: unpacked(&geometry, panels, &weight), bias, input }
}

/// The gradient of one image after another.
struct Back {
    geometry: Geometry,
    /// Of the outputs.
    outputs: Panels,
    /// Of the channels.
    channels: Panels,
    /// For each place of a patch, panel of outputs and panel of channels: outputs × channels.
    weight: Vec<f32>,
    corners: Vec<usize>,
    /// For each panel of channels the padded image.
    sums: Vec<f32>,
}

impl Back {
    fn new(geometry: Geometry, outputs: Panels, weight: &[f32]) -> Back {
        let [channels, ..] = geometry.input;
        let places = geometry.kernel[0] * geometry.kernel[1];
        let panels = Panels::of(channels);
        let mut packed = vec![0.0; places * outputs.numbers() * panels.numbers()];
        for (output, weight) in weight.chunks_exact(geometry.patch()).enumerate() {
            for (channel, weight) in weight.chunks_exact(places).enumerate() {
                for (place, &number) in weight.iter().enumerate() {
                    let panel = (place * outputs.count + output / outputs.width) * panels.count
                        + channel / panels.width;
                    let row = panel * outputs.width + output % outputs.width;
                    packed[row * panels.width + channel % panels.width] = number;
                }
            }
        }
        let points: usize = geometry.padded().iter().product();
        Back {
            geometry,
            outputs,
            channels: panels,
            weight: packed,
            corners: geometry.corners(),
            sums: vec![0.0; points * panels.numbers()],
        }
    }

    /// Adds what the gradient of a panel of outputs gives.
    fn add(&mut self, panel: usize, gradient: &[f32]) {
        let ([tall, broad], [_, wide]) = (self.geometry.kernel, self.geometry.padded());
        let vectors = Arch::new();
        let size = self.outputs.width * self.channels.width;
        let image = self.sums.len() / self.channels.count;
        for (at, sums) in self.sums.chunks_exact_mut(image).enumerate() {
            for place in 0..tall * broad {
                let number = (place * self.outputs.count + panel) * self.channels.count + at;
                vectors.dispatch(Spread {
                    left: gradient,
                    len: self.outputs.width,
                    panel: &self.weight[number * size..][..size],
                    targets: &self.corners,
                    offset: place / broad * wide + place % broad,
                    into: sums,
                });
            }
        }
    }

    /// Takes the sums out, without what lies around the image.
    fn put(&mut self, into: &mut [f32]) {
        let [_, height, width] = self.geometry.input;
        let ([above, left], [_, wide]) = (self.geometry.padding, self.geometry.padded());
        let (lanes, points) = (self.channels.width, height * width);
        let image = self.sums.len() / self.channels.count;
        let panels = self.sums.chunks_exact(image).zip(into.chunks_mut(lanes * points));
        for (sums, into) in panels {
            for y in 0..height {
                let row = &sums[((y + above) * wide + left) * lanes..][..width * lanes];
                for (channel, into) in into.chunks_exact_mut(points).enumerate() {
                    let from = row[channel..].iter().step_by(lanes);
                    into[y * width..][..width].iter_mut().zip(from).for_each(|(i, f)| *i = *f);
                }
            }
        }
        self.sums.fill(0.0);
    }
}

/// Weights for products with patches: panel after panel, in each a row for each number of a patch.
fn packed(geometry: &Geometry, panels: Panels, weight: &[f32]) -> Vec<f32> {
    let mut into = vec![0.0; geometry.patch() * panels.numbers()];
    for (output, weight) in weight.chunks_exact(geometry.patch()).enumerate() {
        each_place(geometry, panels, output)
            .zip(weight)
            .for_each(|(at, number)| into[at] = *number);
    }
    into
}

/// The other way around.
fn unpacked(geometry: &Geometry, panels: Panels, from: &[f32]) -> Vec<f32> {
    let all = (0..geometry.outputs).flat_map(|output| each_place(geometry, panels, output));
    all.map(|at| from[at]).collect()
}

/// Where the weights of an output are when packed, in their own order: channel after channel.
fn each_place(
    geometry: &Geometry,
    panels: Panels,
    output: usize,
) -> impl Iterator<Item = usize> + use<> {
    let ([channels, ..], width) = (geometry.input, panels.width);
    let places = geometry.kernel[0] * geometry.kernel[1];
    let from = output / width * geometry.patch() * width + output % width;
    (0..channels).flat_map(move |channel| {
        (0..places).map(move |place| from + (place * channels + channel) * width)
    })
}
