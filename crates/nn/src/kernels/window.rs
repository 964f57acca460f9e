//! The largest number of each window, and where it was: forward and back. What follows a convolution is done on its output
//! while that is near: `Finish` is a rectifier, windows side by side, both or neither.

use pulp::{Simd, WithSimd};

/// No number of the window came out: the rectifier stopped it.
pub(crate) const STOPPED: u8 = u8::MAX;

/// What is done to the output of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Finish {
    /// Whether numbers below zero become zero.
    pub(crate) rectifies: bool,
    /// Height and width of windows side by side of which the largest number stays; 1 is none.
    pub(crate) window: usize,
}

impl Finish {
    /// Nothing.
    pub(crate) const NONE: Finish = Finish { rectifies: false, window: 1 };
    /// Numbers below zero become zero.
    pub(crate) const RECTIFY: Finish = Finish { rectifies: true, window: 1 };
    /// The widest window whose places can be told.
    pub(crate) const WINDOW_MAX: usize = 15;

    /// This, and then another: a rectifier may stand on either side of windows. `None`: it takes two windows.
    pub(crate) fn then(self, next: Finish) -> Option<Finish> {
        let window = self.window.max(next.window);
        let fits = (self.window == 1 || next.window == 1) && window <= Finish::WINDOW_MAX;
        fits.then_some(Finish { rectifies: self.rectifies || next.rectifies, window })
    }

    /// Height and width of what is left of an image.
    pub(crate) fn output(self, [height, width]: [usize; 2]) -> [usize; 2] {
        [height / self.window, width / self.window]
    }
}

/// The first points of windows, and how far a window's other points are from it.
pub(crate) struct Windows {
    firsts: Vec<usize>,
    places: Vec<usize>,
}

impl Windows {
    /// Of an image of so many rows and columns.
    pub(crate) fn new(finish: Finish, image: [usize; 2]) -> Windows {
        let ([high, wide], size) = (finish.output(image), finish.window);
        let [_, width] = image;
        let pairs = |rows: usize, columns: usize, by: usize| -> Vec<usize> {
            (0..rows).flat_map(|y| (0..columns).map(move |x| (y * width + x) * by)).collect()
        };
        Windows { firsts: pairs(high, wide, size), places: pairs(size, size, 1) }
    }

    /// How many windows.
    pub(crate) fn count(&self) -> usize {
        self.firsts.len()
    }
}

/// One panel of one image's sums leaves: of each window the largest number stays, and channels come one after another.
pub(crate) struct Leave<'a> {
    pub(crate) windows: &'a Windows,
    /// Numbers of a panel.
    pub(crate) width: usize,
    pub(crate) rectifies: bool,
    /// For each point a row of the panel.
    pub(crate) sums: &'a [f32],
    /// Room for a row of the panel for each window.
    pub(crate) kept: &'a mut [f32],
    /// Places of the largest, likewise; `None` where nothing is to be done but to put channels one after another.
    pub(crate) chosen: Option<&'a mut [u8]>,
    pub(crate) into: &'a mut [f32],
}

impl WithSimd for Leave<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.chosen {
            None => apart(self.sums, self.width, self.into),
            Some(chosen) => {
                let how = (self.rectifies, self.width);
                reduce(self.windows, how, self.sums, (self.kept, chosen));
                apart(self.kept, self.width, self.into);
            }
        }
    }
}

/// The gradient of one panel of one image comes back: to the places that were chosen, and nothing to the others. What is
/// in no window is left as it is.
pub(crate) struct Enter<'a> {
    pub(crate) windows: &'a Windows,
    /// Numbers of a panel.
    pub(crate) width: usize,
    pub(crate) gradient: &'a [f32],
    /// Room for a row of the panel for each window.
    pub(crate) kept: &'a mut [f32],
    pub(crate) chosen: Option<&'a [u8]>,
    /// For each point a row of the panel.
    pub(crate) into: &'a mut [f32],
    /// What is added to by all points.
    pub(crate) bias: &'a mut [f32],
}

impl WithSimd for Enter<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.chosen {
            None => together(self.gradient, self.width, self.into),
            Some(chosen) => {
                together(self.gradient, self.width, self.kept);
                scatter(self.windows, self.width, (self.kept, chosen), self.into);
            }
        }
        for row in self.into.chunks_exact(self.width) {
            self.bias.iter_mut().zip(row).for_each(|(bias, number)| *bias += number);
        }
    }
}

/// Keeps of each window the largest number of each lane and its place, the first of equals.
#[inline(always)]
fn reduce(
    windows: &Windows,
    (rectifies, width): (bool, usize),
    from: &[f32],
    (into, chosen): (&mut [f32], &mut [u8]),
) {
    let rows = into.chunks_exact_mut(width).zip(chosen.chunks_exact_mut(width));
    for (&first, (best, chosen)) in windows.firsts.iter().zip(rows) {
        best.copy_from_slice(&from[first * width..][..width]);
        chosen.fill(0);
        for (place, step) in (1u8..).zip(&windows.places[1..]) {
            let from = &from[(first + step) * width..][..width];
            for ((best, chosen), &number) in best.iter_mut().zip(&mut *chosen).zip(from) {
                // What is no number is taken, so that it is seen.
                let larger = (number > *best) | number.is_nan();
                *best = if larger { number } else { *best };
                *chosen = if larger { place } else { *chosen };
            }
        }
        if rectifies {
            for (best, chosen) in best.iter_mut().zip(chosen) {
                let low = *best <= 0.0;
                *best = if low { 0.0 } else { *best };
                *chosen = if low { STOPPED } else { *chosen };
            }
        }
    }
}

/// Gives each gradient to the place that was chosen.
#[inline(always)]
fn scatter(windows: &Windows, width: usize, (from, chosen): (&[f32], &[u8]), into: &mut [f32]) {
    let rows = from.chunks_exact(width).zip(chosen.chunks_exact(width));
    for (&first, (from, chosen)) in windows.firsts.iter().zip(rows) {
        for (place, step) in (0u8..).zip(&windows.places) {
            let into = &mut into[(first + step) * width..][..width];
            for ((into, &number), &chosen) in into.iter_mut().zip(from).zip(chosen) {
                *into = if chosen == place { number } else { 0.0 };
            }
        }
    }
}

/// Points whose channels are put apart at once: they stay in the nearest cache.
const BLOCK: usize = 16;

/// Rows of lanes become lanes of rows.
#[inline(always)]
fn apart(rows: &[f32], width: usize, into: &mut [f32]) {
    let count = rows.len() / width;
    for (at, rows) in rows.chunks(BLOCK * width).enumerate() {
        for (lane, into) in into.chunks_exact_mut(count).enumerate() {
            let into = into[at * BLOCK..].iter_mut();
            into.zip(rows[lane..].iter().step_by(width)).for_each(|(into, from)| *into = *from);
        }
    }
}

/// Lanes of rows become rows of lanes; lanes that are not there stay as they are.
#[inline(always)]
fn together(lanes: &[f32], width: usize, into: &mut [f32]) {
    let count = into.len() / width;
    for (at, rows) in into.chunks_mut(BLOCK * width).enumerate() {
        for (lane, from) in lanes.chunks_exact(count).enumerate() {
            let into = rows[lane..].iter_mut().step_by(width);
            into.zip(&from[at * BLOCK..]).for_each(|(into, from)| *into = *from);
        }
    }
}
