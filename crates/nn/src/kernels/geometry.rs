//! The sizes of a convolution of images and where its patches lie: an image with zeros around it, point after point with all
//! channels of a point together, so that a row of a patch is one run of numbers.

use super::tile::{Runs, SLACK};
use pulp::{Simd, WithSimd};

/// The sizes of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    /// Channels, height and width of an image.
    pub(crate) input: [usize; 3],
    /// Channels that come out.
    pub(crate) outputs: usize,
    /// Height and width of a patch.
    pub(crate) kernel: [usize; 2],
    /// Points from one patch to the next.
    pub(crate) stride: usize,
    /// Zeros above and below, left and right.
    pub(crate) padding: [usize; 2],
}

impl Geometry {
    /// Height and width of what comes out.
    pub(crate) fn output(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            (self.input[axis + 1] + 2 * self.padding[axis] - self.kernel[axis]) / self.stride + 1
        })
    }

    /// Points of an output channel.
    pub(crate) fn points(&self) -> usize {
        self.output().iter().product()
    }

    /// Numbers of an image.
    pub(crate) fn image(&self) -> usize {
        self.input.iter().product()
    }

    /// Numbers of a patch.
    pub(crate) fn patch(&self) -> usize {
        self.input[0] * self.kernel[0] * self.kernel[1]
    }

    /// Height and width of an image with zeros around it.
    pub(crate) fn padded(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.input[axis + 1] + 2 * self.padding[axis])
    }

    /// At which point of the padded image each patch begins.
    pub(crate) fn corners(&self) -> Vec<usize> {
        let ([height, width], [_, wide]) = (self.output(), self.padded());
        let corner = |y: usize, x: usize| (y * wide + x) * self.stride;
        (0..height).flat_map(|y| (0..width).map(move |x| corner(y, x))).collect()
    }
}

/// Runs shorter than this are gathered: patches are written down.
const RUN_MIN: usize = 16;

/// The patches of one image after another.
pub(crate) struct Patches {
    geometry: Geometry,
    gathers: bool,
    numbers: Vec<f32>,
    starts: Vec<usize>,
}

impl Patches {
    /// Room for the patches of an image.
    pub(crate) fn new(geometry: Geometry) -> Patches {
        let channels = geometry.input[0];
        let gathers = geometry.kernel[1] * channels < RUN_MIN;
        let (len, starts) = match gathers {
            true => {
                let patch = geometry.patch();
                let points = geometry.points();
                (points * patch, (0..points).map(|point| point * patch).collect())
            }
            false => {
                let points: usize = geometry.padded().iter().product();
                let corners = geometry.corners().into_iter();
                (points * channels, corners.map(|corner| corner * channels).collect())
            }
        };
        // What lies outside the image is never written: it stays zero.
        Patches { geometry, gathers, numbers: vec![0.0; len + SLACK], starts }
    }

    /// The patches as rows of a product.
    pub(crate) fn runs(&self) -> Runs<'_> {
        let [channels, _, _] = self.geometry.input;
        let ([tall, wide], [_, width]) = (self.geometry.kernel, self.geometry.padded());
        let (numbers, starts) = (&self.numbers[..], &self.starts[..]);
        match self.gathers {
            true => Runs { numbers, starts, count: 1, stride: 0, len: self.geometry.patch() },
            false => Runs {
                numbers,
                starts,
                count: tall,
                stride: width * channels,
                len: wide * channels,
            },
        }
    }
}

/// Takes an image, channel after channel.
pub(crate) struct Take<'a> {
    pub(crate) patches: &'a mut Patches,
    pub(crate) image: &'a [f32],
}

impl WithSimd for Take<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Patches { geometry, gathers, numbers, .. } = self.patches;
        match gathers {
            true => gather(geometry, self.image, numbers),
            false => interleave(geometry, self.image, numbers),
        }
    }
}

/// Writes patch after patch, each row after row, all channels of a point together.
#[inline(always)]
fn gather(geometry: &Geometry, image: &[f32], into: &mut [f32]) {
    let [channels, height, width] = geometry.input;
    let ([high, wide], [tall, broad]) = (geometry.output(), geometry.kernel);
    let (stride, [above, left]) = (geometry.stride, geometry.padding);
    let patch = geometry.patch();
    for (channel, image) in image.chunks_exact(height * width).enumerate() {
        for (dy, dx) in (0..tall).flat_map(|dy| (0..broad).map(move |dx| (dy, dx))) {
            let at = (dy * broad + dx) * channels + channel;
            // Patches whose point (dy, dx) lies inside the image.
            let inside = |padding: usize, by: usize, size: usize, count: usize| {
                let from = padding.saturating_sub(by).div_ceil(stride);
                from..((size + padding).saturating_sub(by).div_ceil(stride)).min(count)
            };
            let across = inside(left, dx, width, wide);
            // Of an image that is smaller than the kernel, a place may lie outside for every patch.
            if across.is_empty() {
                continue;
            }
            for y in inside(above, dy, height, high) {
                let row = &image[(y * stride + dy - above) * width..][..width];
                let from = row[across.start * stride + dx - left..].iter();
                let into = &mut into[(y * wide + across.start) * patch + at..];
                let places = into.iter_mut().step_by(patch).take(across.len());
                places.zip(from.step_by(stride)).for_each(|(place, number)| *place = *number);
            }
        }
    }
}

/// Writes the image inside its zeros, all channels of a point together.
#[inline(always)]
fn interleave(geometry: &Geometry, image: &[f32], into: &mut [f32]) {
    let [channels, height, width] = geometry.input;
    let ([above, left], [_, wide]) = (geometry.padding, geometry.padded());
    for y in 0..height {
        let row = &mut into[((y + above) * wide + left) * channels..][..width * channels];
        for (x, point) in row.chunks_exact_mut(channels).enumerate() {
            let image = image[y * width + x..].iter().step_by(height * width);
            point.iter_mut().zip(image).for_each(|(point, number)| *point = *number);
        }
    }
}
