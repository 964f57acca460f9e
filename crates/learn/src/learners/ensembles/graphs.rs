//! The graph of an ensemble: its members' graphs side by side, and what is made of their answers.

use super::conversion::Conversion;
use super::crew::Crew;
use super::parts;
use starlings_core::{FEATURES, Graph, Model, Node, Op};

/// Puts a member's graph in, reading `features`; the name of its answer.
pub(super) fn join(into: &mut Graph, prefix: &str, graph: Graph, features: &str) -> Option<String> {
    let own: Vec<String> = graph.nodes.iter().map(|node| node.output.clone()).collect();
    let rename = |name: &String| match name.as_str() {
        FEATURES => features.to_string(),
        _ => format!("{prefix}{name}"),
    };
    for (name, tensor) in &graph.constants {
        into.constants.insert(rename(name), tensor.clone());
    }
    for node in graph.nodes {
        let inputs = node.inputs.iter().map(rename).collect();
        into.nodes.push(Node { op: node.op, inputs, output: rename(&node.output) });
    }
    own.last().map(rename)
}

/// The answer of a fit to the ensemble's features; none where the member has no graph.
pub(super) fn fit(graph: &mut Graph, crew: &Crew, model: &Model, fit: usize) -> Option<String> {
    let view = format!("view{}", crew.fits[fit].member);
    seen(graph, crew, (model, fit), &view)
}

/// The same where the conversion has another name.
pub(super) fn seen(
    graph: &mut Graph,
    crew: &Crew,
    (model, fit): (&Model, usize),
    view: &str,
) -> Option<String> {
    let prefix = parts::prefix(fit);
    // The steps of a preparation have no operators.
    let trained = crew.member(fit).trained.as_ref();
    if trained.is_some_and(|trained| trained.prepared.is_some()) {
        return None;
    }
    let features = match Conversion::load(view, model) {
        None => FEATURES.to_string(),
        Some(conversion) => conversion.graph(graph, &format!("{prefix}{view}"))?,
    };
    let own = crew.member(fit).learner.graph(&parts::copy(model, &prefix))?;
    let said = join(graph, &prefix, own, &features)?;
    let Some(classes) = crew.classes(model, fit) else { return Some(said) };
    // Each of the model's classes goes to its place among the rows' classes; what is left is shared out anew.
    let known = crew.member(fit).trained.as_ref().map_or(0, |trained| trained.schema.classes());
    let mut places = vec![0.0; known * classes.len()];
    for (class, &own) in classes.iter().enumerate().filter(|(_, own)| **own >= 0) {
        places[own as usize * classes.len() + class] = 1.0;
    }
    let places = graph.constant(&format!("{prefix}places"), &[known, classes.len()], places);
    let moved = graph.node(Op::MatMul, &[&said, &places]);
    let total = graph.node(Op::SumRows, &[&moved]);
    Some(graph.node(Op::Div, &[&moved, &total]))
}

/// Σ wᵢ·answerᵢ / Σ wᵢ.
pub(super) fn mean(graph: &mut Graph, answers: &[(String, f64)]) -> Option<String> {
    let total: f64 = answers.iter().map(|(_, weight)| weight).sum();
    let mut sum: Option<String> = None;
    for (number, (answer, weight)) in answers.iter().enumerate() {
        let weight = graph.constant(&format!("share_{number}"), &[1], vec![weight / total]);
        let term = graph.node(Op::Mul, &[answer, &weight]);
        sum = Some(match sum {
            None => term,
            Some(sum) => graph.node(Op::Add, &[&sum, &term]),
        });
    }
    sum
}

/// One where the largest of each row stands first, else zero.
pub(super) fn vote(graph: &mut Graph, answer: &str, classes: usize) -> String {
    let best = graph.node(Op::ArgMaxRows, &[answer]);
    let name = "classes";
    if !graph.constants.contains_key(name) {
        graph.constant(name, &[classes], (0..classes).map(|class| class as f64).collect());
    }
    graph.node(Op::Equal, &[&best, name])
}
