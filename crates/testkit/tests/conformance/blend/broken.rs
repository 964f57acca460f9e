//! Blends, tempers and controls that each break one law, which proves that the laws can fail.

use super::local;
use starlings_consistency::{At, Blend, Late, MixControl, Share, Temper};
use starlings_core::{Body, Kind, Model, Role, Rows, Seat, Tensor, Update, Values};
use starlings_testkit::conformance::blend;
use std::sync::atomic::{AtomicU64, Ordering};

/// Local averaging, or dynamic averaging where circles matter, spoilt in one place.
struct Broken {
    inner: Box<dyn Blend>,
    flaw: Flaw,
    calls: AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    Foreign,
    Prepares,
    Whole,
    Unsettled,
    Secret,
    Selective,
    Eager,
    Forgetful,
    Restless,
    Partisan,
    Disorderly,
    Stubborn,
    Exclusive,
    Hasty,
}

fn broken(flaw: Flaw) -> Box<dyn Blend> {
    use Flaw::{Disorderly, Exclusive, Hasty, Partisan, Stubborn};
    let inner = match flaw {
        Partisan | Disorderly | Stubborn | Exclusive | Hasty => {
            local("dynamic-averaging", "check = 4")
        }
        _ => local("local", "steps = 4"),
    };
    Box::new(Broken { inner, flaw, calls: AtomicU64::new(0) })
}

impl Broken {
    fn seen(&self, at: &At) -> At {
        let ending = at.ending && self.flaw != Flaw::Unsettled;
        At { ending, circles: at.circles || self.flaw == Flaw::Stubborn, ..*at }
    }
}

impl Blend for Broken {
    fn share(&self) -> Share {
        self.inner.share()
    }

    fn prepare(&self, model: &mut Model) {
        self.inner.prepare(model);
        match self.flaw {
            Flaw::Foreign => model.set("extra", Tensor::zeros(Kind::F64, &[1], Role::State)),
            Flaw::Prepares => {
                let now =
                    Tensor { role: Role::State, ..model.get("weights").expect("a weight").clone() };
                model.set("blend.anchor.weights", now);
            }
            _ => {}
        }
    }

    fn circle(&self, at: &At, round: u32, model: &Model) -> Option<Vec<Seat>> {
        let mut circle = self.inner.circle(&self.seen(at), round, model)?;
        match self.flaw {
            Flaw::Partisan if !circle.contains(&at.seat) => return None,
            Flaw::Disorderly => circle.reverse(),
            _ => {}
        }
        Some(circle)
    }

    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update> {
        let mut offer = self.inner.offer(&self.seen(at), round, model)?;
        match self.flaw {
            Flaw::Exclusive if round == 2 => return None,
            Flaw::Whole => {
                let all = model.get("weights").expect("a weight").values.clone();
                let block = offer.blocks.iter_mut().find(|block| block.name == "weights");
                block.expect("offered").body = Body::Dense(all);
            }
            Flaw::Selective if model.i64("weights.clock")[0] > at.steps as i64 => return None,
            Flaw::Eager => model.f64_mut("weights")[0] += 1.0,
            _ => {}
        }
        Some(offer)
    }

    fn absorb(&self, at: &At, round: u32, sum: &Update, model: &mut Model) {
        let own = model.f64("weights")[0];
        self.inner.absorb(&self.seen(at), round, sum, model);
        match self.flaw {
            Flaw::Secret => {
                let calls = self.calls.fetch_add(1, Ordering::Relaxed);
                model.f64_mut("weights")[0] += calls as f64;
            }
            Flaw::Forgetful => model.f64_mut("weights")[0] = own,
            Flaw::Restless => {
                model.f64_mut("weights")[0] += 1.0;
                model.f64_mut("blend.anchor.weights")[0] += 1.0;
            }
            Flaw::Hasty if round == 0 && !at.ending => {
                // Exact in binary, so that still models stay where they are.
                model.f64_mut("blend.anchor.weights")[0] += 0.0078125;
            }
            _ => {}
        }
    }
}

#[test]
fn broken_blends_are_found_out() {
    let cases = [
        (Flaw::Foreign, "its names begin with blend."),
        (Flaw::Prepares, "a model that was prepared already is changed"),
        (Flaw::Whole, "a model and no delta"),
        (Flaw::Unsettled, "differ after the ending"),
        (Flaw::Secret, "it remembers beside the model"),
        (Flaw::Selective, "only some of the workers offer"),
        (Flaw::Eager, "asked twice"),
        (Flaw::Forgetful, "differ after the ending"),
        (Flaw::Restless, "a second ending"),
        (Flaw::Partisan, "name different circles"),
        (Flaw::Disorderly, "not seats in their order"),
        (Flaw::Stubborn, "where some cannot sum by themselves"),
        (Flaw::Exclusive, "ends with a sum of some alone"),
        (Flaw::Hasty, "broke off in round 0"),
    ];
    for (flaw, law) in cases {
        let found = blend::check(&|| broken(flaw)).expect_err(law);
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}

/// A temper and a control made of functions.
struct BrokenTemper(fn(&mut Rows));

impl Temper for BrokenTemper {
    fn temper(&self, rows: &mut Rows, _late: &Late<'_>) {
        (self.0)(rows);
    }

    fn remembers(&self) -> bool {
        false
    }
}

struct BrokenControl {
    again: fn(u32, f64) -> bool,
    critical: fn(f64) -> f64,
}

impl MixControl for BrokenControl {
    fn again(&self, _steps: u64, rounds: u32, distance: f64, _critical: f64) -> bool {
        (self.again)(rounds, distance)
    }

    fn critical(&self, moved: f64, _before: f64) -> f64 {
        (self.critical)(moved)
    }
}

#[test]
fn broken_tempers_and_controls_are_found_out() {
    let halves = BrokenTemper(|rows| {
        if let Values::F64(values) = &mut rows.values {
            values.iter_mut().for_each(|g| *g *= 0.5);
        }
    });
    assert!(blend::check_temper(&halves).unwrap_err().contains("not late"));
    type Case = (fn(u32, f64) -> bool, fn(f64) -> f64, &'static str);
    let cases: [Case; 4] = [
        (|_, _| false, |moved| moved, "nobody mixes"),
        (|_, _| true, |moved| moved, "more than 9 rounds"),
        (|rounds, distance| rounds < 1 || (rounds < 9 && distance < 1.0), |m| m, "fewer rounds"),
        (|rounds, _| rounds < 1, |moved| -moved, "lowers the critical distance"),
    ];
    for (again, critical, law) in cases {
        let found = blend::check_mixing(&BrokenControl { again, critical }, 9).unwrap_err();
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}
