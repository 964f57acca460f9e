//! The largest numbers alone: top-k sparsification with memory (Aji and Heafield, 2017; Stich et al., 2018), with momentum
//! correction and momentum factor masking if asked for (Lin et al., 2018). What is not sent waits at its seat, and
//! is sent when it has grown large enough.
//!
//! Sums of a few seats are sparse too but share no places, so contributions go whole to whoever folds them.
//!
//! On the wire: which places, then their numbers (f32). How many is known on both sides: `ratio` of the part, rounded
//! up. NaN and infinities are larger than all numbers, so they are always among those sent.
//! Cost: ratio · (4 + 1 or 2) bytes a number; two passes to select.

use super::BuildCodec;
use crate::kernels::select;
use crate::{Compressor, Feedback, Keeps, Malformed, Scheme, places};
use starlings_core::{Ability, Entry, Param, ParamKind, Rng};

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "top-k",
    summary: "The largest numbers travel; the others wait at their seat until they are among the largest",
    reference: "Aji and Heafield: Sparse communication for distributed gradient descent, EMNLP 2017; Lin et al.: Deep gradient compression, ICLR 2018",
    params: &[
        Param {
            name: "ratio",
            kind: ParamKind::Float { min: 1e-6, max: 1.0 },
            default: Some("0.01"),
            help: "which share of a part travels, one number at least",
        },
        Param {
            name: "momentum",
            kind: ParamKind::Float { min: 0.0, max: 0.999 },
            default: Some("0.0"),
            help: "momentum correction: gather velocities instead of gradients (with a solver that has no momentum of its own)",
        },
    ],
    gives: &[Ability::OneWay],
    needs: &[Ability::Contributions],
    build: |params| {
        let (ratio, momentum) = (params.f64("ratio"), params.f64("momentum"));
        Ok(Scheme::Contributions(Box::new(TopK { ratio, momentum })))
    },
};

struct TopK {
    ratio: f64,
    momentum: f64,
}

impl Compressor for TopK {
    fn keeps(&self) -> Keeps {
        Keeps::Contraction { delta: self.ratio }
    }

    fn feedback(&self) -> Option<Feedback> {
        Some(Feedback { momentum: self.momentum })
    }

    fn encode(&self, values: &[f32], _: &mut Rng, out: &mut Vec<u8>) {
        let places = select::largest(values, select::share(self.ratio, values.len()));
        places::encode(&places, values.len(), out);
        out.reserve(4 * places.len());
        places.iter().for_each(|&at| out.extend_from_slice(&values[at as usize].to_le_bytes()));
    }

    fn decode(&self, bytes: &[u8], into: &mut [f32]) -> Result<(), Malformed> {
        let count = select::share(self.ratio, into.len());
        let (places, numbers) = places::decode(bytes, into.len(), count)?;
        if numbers.len() != 4 * count {
            return Err(Malformed("the numbers are not four bytes for each place"));
        }
        for (place, number) in places.into_iter().zip(numbers.as_chunks::<4>().0) {
            into[place as usize] += f32::from_le_bytes(*number);
        }
        Ok(())
    }
}
