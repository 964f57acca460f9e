//! Power iteration clustering.

use super::{built, dense};
use starlings_core::{Blame, Result};
use starlings_data::{Column, ColumnKind, Dealer, Encoding, Holding, Schema, Table, Target};
use starlings_learn::Learner;
use starlings_testkit::drive::{Drive, Driven, drive};
use std::sync::Arc;

/// The edges of a graph of `nodes` nodes whose names are their numbers.
fn graph(nodes: usize, edges: &[(usize, usize, f64)]) -> (Table, Schema) {
    let values = edges.iter().flat_map(|&(a, b, _)| [a as f32, b as f32]).collect();
    let labels = edges.iter().map(|edge| edge.2 as f32).collect();
    let column = |position, name: &str| Column {
        name: name.to_string(),
        position,
        kind: ColumnKind::Categorical { codes: (0..nodes).map(|n| format!("{n:04}")).collect() },
        missing: 0,
    };
    let columns = vec![column(0, "source"), column(1, "destination")];
    let (encoding, target) = (Encoding::Identity, Target::Number);
    let schema = Schema { columns, encoding, features: 2, target, label: None };
    (Table { labels, ..dense(2, values) }, schema)
}

fn fit(learner: &dyn Learner, (table, schema): &(Table, Schema), workers: u32) -> Result<Driven> {
    let options = Drive { workers, ..Drive::default() };
    let facts = options.facts(schema, table.rows() as u64);
    drive(learner, &facts, &Holding::whole(Arc::new(table.clone()), options.shards), &options)
}

/// The paper's circles: rings of different radius around one point, similarities falling with squared distance.
fn circles(rings: &[(f64, usize)]) -> (Table, Schema) {
    let mut points = Vec::new();
    for &(radius, count) in rings {
        for at in 0..count {
            let angle = std::f64::consts::TAU * at as f64 / count as f64;
            points.push((radius * angle.cos(), radius * angle.sin()));
        }
    }
    let mut edges = Vec::new();
    for (a, p) in points.iter().enumerate() {
        for (b, q) in points.iter().enumerate().skip(a + 1) {
            let squared = (p.0 - q.0).powi(2) + (p.1 - q.1).powi(2);
            edges.push((a, b, (-squared / 2.0).exp()));
        }
    }
    graph(points.len(), &edges)
}

#[test]
fn rings_are_told_apart_on_any_number_of_workers() {
    // Spark's own example: ten nodes on a ring of radius 1, forty on one of radius 4.
    let rings = circles(&[(1.0, 10), (4.0, 40)]);
    for start in ["random", "degree"] {
        let learner = built(
            "power-iteration-clustering",
            &format!("k = 2\nmax_iterations = 40\nstart = '{start}'"),
        );
        for workers in [1, 3] {
            let driven = fit(&*learner, &rings, workers).unwrap();
            let clusters = driven.model.i64("clusters");
            assert!(clusters[..10].iter().all(|&c| c == clusters[0]), "{start}: {clusters:?}");
            assert!(clusters[10..].iter().all(|&c| c == 1 - clusters[0]), "{start}: {clusters:?}");
            assert!(driven.grade.objective < 0.1, "{start}: {:?}", driven.grade);
        }
    }
}

#[test]
fn k_means_cannot_tell_rings_apart() {
    // What sets it apart: the rings share their centre, so that no two centres part them.
    let mut points = Vec::new();
    for (radius, count) in [(1.0f32, 10), (4.0, 40)] {
        for at in 0..count {
            let angle = std::f32::consts::TAU * at as f32 / count as f32;
            points.extend([radius * angle.cos(), radius * angle.sin()]);
        }
    }
    let learner = built("k-means", "k = 2");
    let table = dense(2, points);
    let driven = super::fit(&*learner, &table, 1);
    let found = super::predictions(&*learner, &driven, &table);
    let outer: Vec<f64> = found[20..].chunks_exact(2).map(|pair| pair[0]).collect();
    assert!(outer.contains(&0.0) && outer.contains(&1.0));
}

#[test]
fn a_row_gets_the_cluster_of_its_source() {
    // Two triangles and a weak bridge.
    let edges = [
        (0, 1, 1.0),
        (1, 2, 1.0),
        (2, 0, 1.0),
        (3, 4, 1.0),
        (4, 5, 1.0),
        (5, 3, 1.0),
        (2, 3, 0.01),
    ];
    let triangles = graph(6, &edges);
    let learner = built("power-iteration-clustering", "");
    let driven = fit(&*learner, &triangles, 2).unwrap();
    let dealer = Dealer::new(Holding::whole(Arc::new(triangles.0.clone()), 1), 0, 1);
    let mut out = Vec::new();
    learner.predict(&driven.model, &dealer.everything(), &mut out).unwrap();
    let clusters: Vec<f64> = out.chunks_exact(2).map(|pair| pair[0]).collect();
    let first = clusters[0];
    assert_eq!(clusters[..3], [first; 3]);
    assert_eq!(clusters[3..6], [1.0 - first; 3]);
    assert_eq!(clusters[6], first, "the bridge starts in the first triangle");
    // 0.01 leaves each of two clusters of 6.01.
    assert!((driven.grade.objective - 2.0 * 0.01 / 6.01).abs() < 1e-6);
}

#[test]
fn edges_given_twice_add_up_and_weights_multiply() {
    let learner = built("power-iteration-clustering", "start = 'degree'\nmax_iterations = 3");
    let twice = graph(4, &[(0, 1, 1.0), (0, 1, 1.0), (1, 2, 0.5), (2, 3, 1.0), (3, 3, 0.25)]);
    let once = graph(4, &[(1, 0, 2.0), (2, 1, 0.5), (3, 2, 1.0), (3, 3, 0.25)]);
    let mut weighed = graph(4, &[(0, 1, 4.0), (1, 2, 0.5), (2, 3, 1.0), (3, 3, 0.25), (0, 3, 9.0)]);
    weighed.0.weights = vec![0.5, 1.0, 1.0, 1.0, 0.0];
    let embedding = |edges| fit(&*learner, edges, 1).unwrap().model.f64("embedding").to_vec();
    super::close(&embedding(&once), &embedding(&twice), 1e-12);
    super::close(&embedding(&weighed), &embedding(&twice), 1e-12);
}

#[test]
fn bad_edges_are_refused_by_row() {
    let learner = built("power-iteration-clustering", "");
    let fault = fit(&*learner, &graph(3, &[(0, 1, 1.0), (1, 2, -1.0)]), 1).unwrap_err();
    assert!(fault.to_string().contains("row 1 has the similarity -1"), "{fault}");
    let fault = fit(&*learner, &graph(3, &[(0, 1, 0.0)]), 1).unwrap_err();
    assert!(fault.to_string().contains("no edge has a similarity"), "{fault}");
    let fault = fit(&*built("power-iteration-clustering", "k = 4"), &graph(3, &[(0, 1, 1.0)]), 1)
        .unwrap_err();
    assert_eq!(fault.blame(), Blame::Caller);
    assert!(fault.to_string().contains("4 clusters cannot be made of 3 nodes"), "{fault}");
}
