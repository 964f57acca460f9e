//! Numbers beyond a threshold alone, each as plus or minus the threshold (Strom, 2015). The rest, and what a large
//! number has beyond the threshold, waits at its seat; with momentum correction (Lin et al., 2018) it gathers velocities.
//! How many travel follows from the data: none if all is small.
//!
//! On the wire: a byte that says whether all numbers were finite; if not, nothing more, and no number arrives
//! finite. Then how many (u32), which places, and their signs, the first in the lowest bit.
//! Cost: 1 or 2 bytes and a bit for each number beyond the threshold; one pass to find them.

use super::BuildCodec;
use crate::kernels::select;
use crate::{Compressor, Feedback, Keeps, Malformed, Scheme, places};
use starlings_core::{Ability, Entry, Param, ParamKind, Rng};

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "threshold",
    summary: "Numbers beyond a threshold travel as plus or minus the threshold; the rest waits at its seat",
    reference: "Strom: Scalable distributed DNN training using commodity GPU cloud computing, Interspeech 2015",
    params: &[
        Param {
            name: "threshold",
            kind: ParamKind::Float { min: 1e-30, max: 1e30 },
            default: Some("1.0"),
            help: "numbers up to this size wait, and all others are sent as this size: about that of a typical large number",
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
        let (threshold, momentum) = (params.f64("threshold") as f32, params.f64("momentum"));
        Ok(Scheme::Contributions(Box::new(Threshold { threshold, momentum })))
    },
};

const FINITE: u8 = 0;
const NOT_FINITE: u8 = 1;

struct Threshold {
    threshold: f32,
    momentum: f64,
}

impl Compressor for Threshold {
    fn keeps(&self) -> Keeps {
        Keeps::Within { absolute: f64::from(self.threshold) }
    }

    fn feedback(&self) -> Option<Feedback> {
        Some(Feedback { momentum: self.momentum })
    }

    fn encode(&self, values: &[f32], _: &mut Rng, out: &mut Vec<u8>) {
        // The next larger bits: numbers as large as the threshold wait.
        let places = select::at_least(values, self.threshold.to_bits() + 1, values.len() / 64);
        if places.iter().any(|&place| !values[place as usize].is_finite()) {
            out.push(NOT_FINITE);
            return;
        }
        out.push(FINITE);
        out.extend_from_slice(&(places.len() as u32).to_le_bytes());
        places::encode(&places, values.len(), out);
        let sign = |&place: &u32| u8::from(values[place as usize] > 0.0);
        let pack = |group: &[u32]| group.iter().rev().fold(0, |byte, place| 2 * byte + sign(place));
        out.extend(places.chunks(8).map(pack));
    }

    fn decode(&self, bytes: &[u8], into: &mut [f32]) -> Result<(), Malformed> {
        let rest = match bytes {
            [NOT_FINITE] => {
                into.fill(f32::NAN);
                return Ok(());
            }
            [FINITE, rest @ ..] => rest,
            _ => return Err(Malformed("neither finite numbers nor others")),
        };
        let (count, rest) =
            rest.split_first_chunk::<4>().ok_or(Malformed("the count is cut off"))?;
        let count = u32::from_le_bytes(*count) as usize;
        let (places, signs) = places::decode(rest, into.len(), count)?;
        if signs.len() != count.div_ceil(8) {
            return Err(Malformed("the signs are not one bit for each place"));
        }
        for (group, signs) in places.chunks(8).zip(signs) {
            for (at, &place) in group.iter().enumerate() {
                let up = (signs >> at) & 1 == 1;
                into[place as usize] += if up { self.threshold } else { -self.threshold };
            }
        }
        Ok(())
    }
}
