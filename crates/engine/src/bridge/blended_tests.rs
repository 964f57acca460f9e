//! Local steps: replicas go their own ways in silence, and every so many steps all take their mean.

use super::*;
use crate::bridge::adder::{Adder, assert_near, blending, flock, model, step};

/// What the replicas hold after each step, and how many bytes they have sent by then.
fn history(name: &str, parameters: &str, steps: u64) -> Vec<Vec<(Vec<f64>, u64)>> {
    flock(3, |perch| {
        let blending = blending(name, parameters);
        let mut model = model(vec![0.0, 10.0]);
        blend(&blending).prepare(&mut model);
        let mergers = [perch.exact(1), perch.exact(3)];
        let mut blended = Blended::new(Adder::shared(), blending, mergers);
        let taken = (0..steps)
            .map(|number| {
                let adds = vec![(perch.seat() as u64 * number) as f64, 1.0];
                blended.finish(step(number, adds), &mut model).unwrap();
                (model.f64("x").to_vec(), blended.bytes_raw())
            })
            .collect();
        blended.sum(vec![]).unwrap();
        taken
    })
}

#[test]
fn local_steps_are_silent_and_every_so_many_take_the_mean() {
    let replicas = history("local", "steps = 4", 8);
    // Replica s adds s · n in step n, so that the mean of the three adds n.
    let mut truth = [0.0; 3];
    for number in 0..8 {
        (0..3).for_each(|seat| truth[seat] += (seat * number) as f64);
        let exchanged = (number + 1) % 4 == 0;
        if exchanged {
            truth = [truth.iter().sum::<f64>() / 3.0; 3];
        }
        for (seat, replica) in replicas.iter().enumerate() {
            let (model, bytes) = &replica[number];
            assert_near(model, &[truth[seat], 11.0 + number as f64], 1e-12);
            let before = if number == 0 { 0 } else { replica[number - 1].1 };
            assert_eq!(*bytes > before, exchanged, "seat {seat}, step {number}");
        }
    }
}

#[test]
fn a_neighbour_of_the_catalogue_does_not_take_the_mean() {
    for (name, parameters) in [
        ("elastic-averaging", "steps = 4"),
        ("block-momentum", "steps = 4"),
        ("diloco", "steps = 4"),
    ] {
        let replicas = history(name, parameters, 8);
        let mean: f64 = replicas.iter().map(|replica| replica[7].0[0]).sum::<f64>() / 3.0;
        let same = replicas.iter().all(|replica| (replica[7].0[0] - 28.0).abs() < 1e-9);
        assert!(!same, "{name} holds {mean}");
    }
}

#[test]
fn replicas_count_by_the_rows_that_they_have_used() {
    // Seat 0 uses three of four rows of each step, seat 1 one of them.
    let replicas = flock(2, |perch| {
        let blending = blending("local", "steps = 2");
        let mut model = model(vec![0.0]);
        blend(&blending).prepare(&mut model);
        let mergers = [perch.exact(1), perch.exact(3)];
        let mut blended = Blended::new(Adder::shared(), blending, mergers).by_rows(true);
        let (rows, move_by) = [(3, 1.0), (1, 5.0)][perch.seat()];
        let mut taken = Vec::new();
        for number in 0..4 {
            let handed = HandedIn { own_rows: rows, ..step(number, vec![move_by]) };
            blended.finish(handed, &mut model).unwrap();
            taken.push(model.f64("x")[0]);
        }
        blended.cut(Step(4), &mut model).unwrap();
        taken.push(model.f64("x")[0]);
        taken
    });
    // Two steps each: (3 · 2 + 1 · 10) / 4, where a plain mean would give 6. An ending without steps changes nothing.
    assert_near(&replicas[0], &[1.0, 4.0, 5.0, 8.0, 8.0], 1e-12);
    assert_near(&replicas[1], &[5.0, 4.0, 9.0, 8.0, 8.0], 1e-12);
}
