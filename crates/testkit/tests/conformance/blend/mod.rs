//! Blends, tempers and control of mixing: every entry against the laws, and each against the equations of its paper,
//! on quadratics whose local steps have a closed form.

mod approximate;
mod broken;
mod dynamic_averaging;
mod fading;
mod late;
mod mixing;
mod recurrences;
mod tracked;

use starlings_consistency::{Blend, Blending, CONSISTENCIES, Cadence, Consistency};
use starlings_core::{Ability, Entry};
use starlings_testkit::conformance::blend::{self, Quadratic};
use starlings_testkit::conformance::variants;

fn build(name: &str, params: &str) -> Consistency {
    let entry = Entry::find("consistency", CONSISTENCIES, name).expect("in the catalogue");
    let given = params.parse().expect("a table");
    (entry.build)(&entry.check("consistency", &given).expect("allowed")).expect("builds")
}

fn local(name: &str, params: &str) -> Box<dyn Blend> {
    match build(name, params).blend {
        Blending::Local(blend) => blend,
        _ => panic!("{name} takes no local steps"),
    }
}

#[test]
fn every_blend_obeys_the_laws() {
    for entry in CONSISTENCIES {
        for (label, params) in variants(entry) {
            let make = || (entry.build)(&params).unwrap().blend;
            let verdict = match make() {
                Blending::Plain | Blending::Cadence(_) => Ok(()),
                Blending::Local(_) => blend::check(&|| match make() {
                    Blending::Local(blend) => blend,
                    _ => unreachable!("it was just now"),
                }),
                Blending::Tempered(temper) => blend::check_temper(&*temper),
                Blending::Mixing(control) => {
                    blend::check_mixing(&*control, params.size("rounds_max") as u32)
                }
            };
            verdict.unwrap_or_else(|law| panic!("{label}: {law}"));
        }
    }
}

#[test]
fn abilities_say_what_a_blend_works_on() {
    for entry in CONSISTENCIES {
        let needs = |ability| entry.needs.contains(&ability);
        let gives_barrier = entry.gives == [Ability::Barrier];
        match (entry.build)(&variants(entry)[0].1).unwrap().blend {
            Blending::Plain => assert!(!needs(Ability::LocalSteps), "{}", entry.name),
            Blending::Local(_) => {
                let sums = needs(Ability::Sum) && needs(Ability::LocalSteps);
                assert!(sums && gives_barrier, "{}", entry.name);
            }
            Blending::Mixing(_) => {
                let mixes = needs(Ability::Mixing) && needs(Ability::LocalSteps);
                assert!(mixes && gives_barrier, "{}", entry.name);
            }
            Blending::Tempered(_) => assert!(needs(Ability::Served) && needs(Ability::RowWise)),
            Blending::Cadence(_) => assert!(needs(Ability::Served) && needs(Ability::LocalSteps)),
        }
    }
}

#[test]
fn alone_and_without_momentum_every_blend_is_plain_steps() {
    let mut checked = 0;
    for entry in CONSISTENCIES {
        let params = match entry.name {
            "diloco" => "steps = 4\nouter_rate = 1.0\nouter_momentum = 0.0",
            "local" | "block-momentum" | "elastic-averaging" => "steps = 4",
            _ => "",
        };
        if let Blending::Local(blend) = build(entry.name, params).blend {
            blend::check_alone(&*blend).unwrap_or_else(|law| panic!("{}: {law}", entry.name));
            checked += 1;
        }
    }
    assert_eq!(checked, 6);
    let found = blend::check_alone(&*local("diloco", "steps = 4")).unwrap_err();
    assert!(found.contains("alone"), "{found}");
}

#[test]
fn downpour_has_the_periods_that_it_is_told() {
    let Blending::Cadence(cadence) = build("downpour", "fetch = 3\npush = 7\nwarm = 50").blend
    else {
        panic!("downpour has a cadence")
    };
    assert_eq!(cadence, Cadence { fetch: 3, push: 7, warm: 50 });
}

const RATE: f64 = 0.1;
const WORLD: usize = 4;
const PERIOD: u32 = 3;
const START: [f64; 3] = [2.0, -1.0, 0.25];

type Replicas = Vec<Vec<f64>>;

/// `steps` steps of gradient descent on a quadratic: x ← t + (1 − ηc)ⁿ (x − t).
fn descended(objective: &Quadratic, from: &[f64], steps: u32) -> Vec<f64> {
    let parts = from.iter().zip(&objective.curvature).zip(&objective.target);
    parts.map(|((x, c), t)| t + (1.0 - RATE * c).powi(steps as i32) * (x - t)).collect()
}

fn mean(replicas: &Replicas) -> Vec<f64> {
    let of = |k: usize| replicas.iter().map(|x| x[k]).sum::<f64>() / replicas.len() as f64;
    (0..replicas[0].len()).map(of).collect()
}

fn square(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}
