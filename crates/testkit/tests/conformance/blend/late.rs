//! Tempers: what owners do to contributions that come late.

use super::{build, square};
use starlings_consistency::{Blending, Late, Temper};
use starlings_core::{Rows, Values};

fn temper(name: &str, params: &str) -> Box<dyn Temper> {
    match build(name, params).blend {
        Blending::Tempered(temper) => temper,
        _ => panic!("{name} tempers nothing"),
    }
}

fn rows(values: &[f64]) -> Rows {
    let index = (0..values.len() as u32).map(|row| 2 * row).collect();
    Rows { total: 100, width: 1, index, values: Values::F64(values.to_vec()) }
}

fn tempered(temper: &dyn Temper, gradient: &[f64], late: &Late<'_>) -> Vec<f64> {
    let mut rows = rows(gradient);
    temper.temper(&mut rows, late);
    rows.values.as_f64().expect("given as f64").to_vec()
}

#[test]
fn staleness_aware_divides_by_the_updates_that_were_missed() {
    let aware = temper("staleness-aware", "");
    assert!(!aware.remembers());
    for (staleness, expected) in [(0, 12.0), (1, 12.0), (2, 6.0), (4, 3.0), (12, 1.0)] {
        let late = Late { staleness, world: 4, share: 3, read: None, now: None, squares: None };
        assert_eq!(tempered(&*aware, &[12.0, 0.0], &late), [expected, 0.0]);
        let mut narrow = Rows { values: Values::F32(vec![12.0, 0.0]), ..rows(&[0.0, 0.0]) };
        aware.temper(&mut narrow, &late);
        assert_eq!(narrow.values, Values::F32(vec![expected as f32, 0.0]));
    }
}

#[test]
fn delay_compensation_follows_the_formula_on_mean_gradients() {
    let compensated = temper("delay-compensated", "lambda = 0.5");
    assert!(compensated.remembers());
    let (read, now) = (rows(&[1.0, 1.0, 2.0]), rows(&[1.5, 0.0, 2.0]));
    for staleness in [1, 7] {
        let late = Late {
            staleness,
            world: 4,
            share: 10,
            read: Some(&read),
            now: Some(&now),
            squares: None,
        };
        // Means 0.4, −2 and 3: 0.4 + 0.5·0.16·0.5, −2 + 0.5·4·(−1), 3 + 0.
        let found = tempered(&*compensated, &[4.0, -20.0, 30.0], &late);
        let expected = [4.4, -40.0, 30.0];
        assert!(square(&found, &expected) < 1e-20, "{found:?}");
        let narrow = |values: &[f64]| {
            let values = values.iter().map(|&x| x as f32).collect();
            Rows { values: Values::F32(values), ..rows(&[0.0; 3]) }
        };
        let mut found = narrow(&[4.0, -20.0, 30.0]);
        let (read, now) = (narrow(&[1.0, 1.0, 2.0]), narrow(&[1.5, 0.0, 2.0]));
        let late = Late { read: Some(&read), now: Some(&now), ..late };
        compensated.temper(&mut found, &late);
        assert_eq!(found.values, Values::F32(vec![4.4, -40.0, 30.0]));
    }
}

#[test]
fn the_adaptive_form_divides_lambda_by_the_root_of_the_mean_square() {
    let adaptive = temper("delay-compensated", "lambda = 0.5\ndecay = 0.95");
    assert_eq!(adaptive.decay(), Some(0.95));
    assert_eq!(temper("delay-compensated", "").decay(), None);
    let (read, now) = (rows(&[1.0, 1.0]), rows(&[1.5, 0.0]));
    let squares = rows(&[0.25, 16.0]);
    let late = Late {
        staleness: 3,
        world: 4,
        share: 10,
        read: Some(&read),
        now: Some(&now),
        squares: Some(&squares),
    };
    // Means 0.4 and −2, λ 1 and 0.125: 0.4 + 1·0.16·0.5 and −2 + 0.125·4·(−1).
    let found = tempered(&*adaptive, &[4.0, -20.0], &late);
    assert!(square(&found, &[4.8, -25.0]) < 1e-9, "{found:?}");
}

/// Descent along gradients of x²/2 that are `delay` updates old, each tempered by the owner: the sum of squares on
/// the way, and how far on the whole the gradients were from those at the place where they were applied.
fn delayed(temper: &dyn Temper, delay: usize) -> (f64, f64) {
    let mut path = vec![1.0];
    let (mut squares, mut error) = (0.0, 0.0);
    for step in 0..60 {
        let now = path[step];
        let from: usize = step.saturating_sub(delay);
        let read = path[from];
        let staleness = (step - from) as u64;
        let (then, here) = (rows(&[read]), rows(&[now]));
        let late = Late {
            staleness,
            world: 4,
            share: 1,
            read: Some(&then),
            now: Some(&here),
            squares: None,
        };
        let gradient = tempered(temper, &[read], &late)[0];
        error += (gradient - now).abs();
        squares += now * now;
        path.push(now - 0.3 * gradient);
    }
    (squares, error)
}

#[test]
fn delay_compensation_beats_plain_asynchrony_on_a_quadratic_with_delay() {
    let (plain, compensated) =
        (temper("delay-compensated", "lambda = 0.0"), temper("delay-compensated", "lambda = 1.0"));
    for delay in 1..=4 {
        let (plain, compensated) = (delayed(&*plain, delay), delayed(&*compensated, delay));
        assert!(compensated.1 < plain.1, "delay {delay}: {compensated:?}, plain {plain:?}");
        assert!(delay < 3 || compensated.0 < plain.0, "delay {delay}: {compensated:?}, {plain:?}");
    }
}

#[test]
fn tempers_are_told_apart_by_what_they_look_at() {
    let (aware, compensated) = (temper("staleness-aware", ""), temper("delay-compensated", ""));
    let (read, now) = (rows(&[1.0]), rows(&[3.0]));
    let stale = Late {
        staleness: 5,
        world: 4,
        share: 1,
        read: Some(&read),
        now: Some(&read),
        squares: None,
    };
    assert_eq!(tempered(&*compensated, &[2.0], &stale), [2.0], "nothing moved");
    assert_eq!(tempered(&*aware, &[2.0], &stale), [0.4]);
    let moved = Late { staleness: 1, now: Some(&now), ..stale };
    assert_eq!(tempered(&*aware, &[2.0], &moved), [2.0], "one update is what everyone misses");
    assert!((tempered(&*compensated, &[2.0], &moved)[0] - 2.32).abs() < 1e-12);
}
