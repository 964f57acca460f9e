//! Metrics on a flock of threads against scikit-learn's figures (`bench/references/metrics.json`), with one, two, three
//! and seven workers, of which some have no rows.

use super::Colleagues;
use crate::launch::threads::nets;
use serde_json::Value;
use starlings_core::Panel;
use starlings_data::{Features, Share, Table};
use starlings_learn::Task;
use starlings_learn::metrics::{Points, Rated, measure};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Default)]
struct Case {
    task: &'static str,
    outputs: Vec<f64>,
    width: usize,
    labels: Vec<f32>,
    weights: Vec<f32>,
    points: Vec<Vec<f32>>,
}

impl Case {
    fn of(value: &Value) -> Case {
        let tasks = ["classification", "regression", "clustering"];
        let task = tasks.into_iter().find(|it| value["task"] == *it).unwrap();
        let points = value["points"].as_array().into_iter().flatten();
        Case {
            task,
            outputs: numbers(&value["outputs"]),
            width: value["width"].as_u64().unwrap() as usize,
            labels: singles(&value["labels"]),
            weights: singles(&value["weights"]),
            points: points.map(singles).collect(),
        }
    }

    fn rows(&self) -> usize {
        self.outputs.len() / self.width
    }

    /// The rows of a share.
    fn part(&self, share: Share) -> Case {
        let mine = (0..self.rows()).filter(|&row| share.has(row as u64));
        let mine: Vec<usize> = mine.collect();
        let pick = |values: &[f32]| match values {
            [] => Vec::new(),
            _ => mine.iter().map(|&row| values[row]).collect(),
        };
        let outputs = mine.iter().flat_map(|row| &self.outputs[row * self.width..][..self.width]);
        let points = self.points.iter().enumerate().filter(|(row, _)| mine.contains(row));
        Case {
            outputs: outputs.copied().collect(),
            labels: pick(&self.labels),
            weights: pick(&self.weights),
            points: points.map(|(_, point)| point.clone()).collect(),
            ..self.clone()
        }
    }

    fn measured(&self, workers: u32) -> Panel {
        let panels: Vec<Panel> = std::thread::scope(|scope| {
            let start = |net: crate::net::Net| {
                let share = Share { reader: net.seat().0, of: workers };
                let part = self.part(share);
                scope.spawn(move || part.alone(share, net))
            };
            let threads: Vec<_> = nets(workers).unwrap().into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(panels.iter().all(|panel| *panel == panels[0]), "all find the same");
        panels[0].clone()
    }

    fn alone(&self, share: Share, net: crate::net::Net) -> Panel {
        let patience = Duration::from_secs(60);
        let net = Arc::new(net);
        let mut company = Colleagues::new(&net, patience).unwrap();
        let width = 4;
        let features = Features::Dense { width, values: self.points.concat() };
        let table = Table::new(features, vec![]);
        let task = match self.task {
            "classification" => Task::Classification,
            "regression" => Task::Regression,
            _ => Task::Clustering,
        };
        let points = (self.task == "clustering").then_some(Points { table: &table, share });
        let rated = Rated {
            task,
            outputs: &self.outputs,
            width: self.width,
            labels: &self.labels,
            weights: &self.weights,
            groups: &[],
            classes: &[],
            points,
        };
        let found = measure(&mut company, &rated).unwrap();
        net.leave();
        found
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn singles(value: &Value) -> Vec<f32> {
    numbers(value).into_iter().map(|number| number as f32).collect()
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-12 * expected.abs().max(1.0)
}

#[test]
fn metrics_are_those_of_scikit_learn_on_any_number_of_workers() {
    let text = include_str!("../../../bench/references/metrics.json");
    let reference: Value = serde_json::from_str(text).unwrap();
    for value in reference["cases"].as_array().unwrap() {
        let (name, case) = (&value["name"], Case::of(value));
        for workers in [1, 2, 3, 7] {
            let found = case.measured(workers);
            let expected = value["expected"].as_object().unwrap();
            assert_eq!(found.rows as usize, case.rows(), "{name}");
            assert_eq!(
                found.metrics.keys().collect::<Vec<_>>(),
                expected.keys().collect::<Vec<_>>()
            );
            for (metric, expected) in expected {
                let (found, expected) = (found.metrics[metric], expected.as_f64().unwrap());
                // Differences of large squares: sums of k-means' kind.
                let exact = metric != "silhouette_squared" || (found - expected).abs() < 1e-9;
                assert!(
                    exact && (metric == "silhouette_squared" || close(found, expected)),
                    "{name}, {workers} workers, {metric}: {found} instead of {expected}"
                );
            }
            if let Some(table) = value["confusion"].as_array() {
                let confusion = found.confusion.unwrap();
                for (found, expected) in confusion.counts.iter().zip(table) {
                    let expected = numbers(expected);
                    assert!(found.iter().zip(expected).all(|(a, b)| close(*a, b)), "{name}");
                }
            }
            if let Some(table) = value["reliability"].as_array() {
                let bins = found.calibration.unwrap().bins;
                assert_eq!(bins.len(), table.iter().filter(|bin| bin[0] != 0.0).count(), "{name}");
                for (bin, expected) in bins.iter().zip(table) {
                    let found = [bin.weight, bin.predicted, bin.observed];
                    let expected = numbers(expected);
                    assert!(found.iter().zip(expected).all(|(a, b)| close(*a, b)), "{name}");
                }
            }
        }
    }
}

#[test]
fn a_sampled_silhouette_says_so_and_is_the_same_on_any_number_of_workers() {
    let rows = 5000;
    let place = |row: usize| {
        let cluster = row % 3;
        (cluster, 10.0 * cluster as f32 + (row * 7919 % 1000) as f32 / 500.0)
    };
    let outputs = (0..rows).flat_map(|row| [place(row).0 as f64, 1.0]).collect();
    let points = (0..rows).map(|row| vec![place(row).1, 1.0, 0.0, 2.0]).collect();
    let case = Case { task: "clustering", outputs, width: 2, points, ..Case::default() };
    let alone = case.measured(1);
    assert!(alone.metrics.contains_key("silhouette_sampled"), "{alone:?}");
    assert!(!alone.metrics.contains_key("silhouette"));
    for workers in [2, 3] {
        let found = case.measured(workers);
        for (name, value) in &found.metrics {
            assert!(close(*value, alone.metrics[name]), "{name}, {workers} workers");
        }
    }
}

#[test]
fn what_rows_do_not_define_is_left_out() {
    let one_class = Case {
        task: "classification",
        outputs: vec![0.2, 0.8, 0.6, 0.4],
        width: 2,
        labels: vec![1.0, 1.0],
        ..Case::default()
    };
    let found = one_class.measured(2).metrics;
    assert!(!found.contains_key("auc") && found["accuracy"] == 0.5, "{found:?}");
    let no_number = Case { outputs: vec![f64::NAN, f64::NAN, 0.6, 0.4], ..one_class.clone() };
    assert!(no_number.measured(2).metrics.values().all(|value| value.is_finite()));
    let alike = Case { task: "regression", width: 1, labels: vec![3.0; 4], ..one_class.clone() };
    assert!(!alike.measured(3).metrics.contains_key("r2"));
    let weightless = Case { weights: vec![0.0, 0.0], ..one_class };
    assert!(weightless.measured(2).metrics.is_empty());
    let one_cluster = Case {
        task: "clustering",
        outputs: vec![0.0, 0.5, 0.0, 0.25],
        width: 2,
        points: vec![vec![0.0; 4], vec![1.0; 4]],
        ..Case::default()
    };
    assert_eq!(one_cluster.measured(2).metrics.keys().collect::<Vec<_>>(), ["inertia"]);
}
