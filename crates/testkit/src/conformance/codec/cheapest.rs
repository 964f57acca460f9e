//! The laws of a choice among ways: none that is not there, none for nobody, and less of something never makes its way the
//! worse one.

use crate::conformance::{Verdict, ensure};
use starlings_codec::{Cheapest, Facts, Way};

/// All laws.
///
/// # Errors
/// The first broken law.
pub fn check(cheapest: &dyn Cheapest) -> Verdict {
    for len in [0, 1, 100, 10_000, 4_000_000] {
        for world in [1, 2, 16, 1000] {
            for bytes_per_second in [None, Some(1e6), Some(125e6), Some(1e11)] {
                for everyone in [false, true] {
                    let dense = Facts {
                        len,
                        nonzero: len,
                        factors: None,
                        width: 4,
                        world,
                        bytes_per_second,
                        everyone,
                    };
                    choice(cheapest, dense).map_err(|law| format!("{dense:?}: {law}"))?;
                }
            }
        }
    }
    Ok(())
}

fn choice(cheapest: &dyn Cheapest, dense: Facts) -> Verdict {
    ensure!(cheapest.choose(&dense) == Way::Dense, "dense numbers do not travel dense");
    let mut sparse = false;
    for part in [1, 2, 10, 100, 10_000] {
        let chosen = cheapest.choose(&Facts { nonzero: dense.len / part, ..dense });
        ensure!(chosen != Way::Factors, "factors that are not there");
        ensure!(!sparse || chosen == Way::Sparse, "fewer numbers make sparse the worse way");
        sparse = chosen == Way::Sparse;
    }
    let (mut factors, side) = (false, dense.len.isqrt());
    for terms in [side, side / 4, side / 40, 1].map(|terms| terms.max(1)) {
        let chosen = cheapest.choose(&Facts { factors: Some((side, side, terms)), ..dense });
        ensure!(!factors || chosen == Way::Factors, "fewer terms make factors the worse way");
        factors = chosen == Way::Factors;
    }
    Ok(())
}
