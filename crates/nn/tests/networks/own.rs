//! Layers of a job's own: what they compute, and what of them is refused.

use crate::world::{batch, contribution, f32s, facts, network, table};
use starlings_core::Rng;
use starlings_data::Table;
use starlings_learn::Place;
use starlings_testkit::conformance::learner::check_within;

/// Every operation once: tied weights, a norm, a gate, functions of each number.
pub(crate) const MIXED: &str = "
layers = ['mixed 4', 'tanh']
[[layer]]
name = 'mixed'
sizes = ['hidden']
compute = [
  'w = weight(width, hidden)',
  'h = tanh(matmul(input, w))',
  'back = matmul(h, transpose(w))',
  'even = back / sqrt(mean(square(back)) + 1e-2)',
  'gate = softmax(even * ones(width) + zeros(width))',
  'rest = abs(h) - exp(h / 4) * cos(h) + log(square(h) + 1)',
  'concat(gate * input, max(h, 0.1 * h), min(rest, 5) - sum(gate))',
]";

fn rows(width: usize) -> Table {
    let mut rng = Rng::named(5, "rows", &[]);
    let values = (0..12 * width).map(|_| rng.normal() as f32).collect();
    table(width, values, (0..12).map(|row| (row % 2) as f32).collect())
}

/// The loss and all gradients of a first step, one after another.
fn step(name: &str, settings: &str, rows: &Table) -> Vec<f32> {
    let learner = network(name, settings).unwrap();
    let model = learner.init(&facts(rows, 2), Place::WHOLE).unwrap();
    let update = contribution(&*learner, &model, &batch(rows, &[5, 7])).unwrap();
    let mut all = vec![update.f64("loss")[0] as f32];
    for block in update.blocks.iter().filter(|block| !["loss", "rows"].contains(&&*block.name)) {
        all.extend(f32s(&update, &block.name));
    }
    all
}

#[test]
fn a_layer_of_two_is_the_two_one_after_the_other() {
    let own = "
layers = ['dense 6', 'dense 4']
[[layer]]
name = 'dense'
sizes = ['outputs']
compute = ['relu(linear(input, outputs))']";
    let plain = "layers = ['linear 6', 'relu', 'linear 4', 'relu']";
    assert_eq!(step("mlp", own, &rows(5)), step("mlp", plain, &rows(5)));
}

#[test]
fn layers_call_layers_defined_before_them() {
    let own = "
shape = [1, 4, 4]
layers = ['twice 6', 'global-average-pool']
[[layer]]
name = 'once'
sizes = ['channels-out']
compute = ['relu(conv(input, channels-out, 3x3))']
[[layer]]
name = 'twice'
sizes = ['n']
compute = ['half = once(input, n / 2)', 'once(half, channels * n)']";
    let plain = "
shape = [1, 4, 4]
layers = ['conv 3 3x3', 'relu', 'conv 6 3x3', 'relu', 'global-average-pool']";
    assert_eq!(step("cnn", own, &rows(16)), step("cnn", plain, &rows(16)));
}

#[test]
fn attention_can_be_written_in_a_job() {
    let own = "
steps = 4
layers = ['look 3', 'global-average-pool']
[[layer]]
name = 'look'
sizes = ['n']
compute = [
  'query = linear(input, n)',
  'key = linear(input, n)',
  'weights = softmax(matmul(query, transpose(key)) / sqrt(n))',
  'concat(input, matmul(weights, linear(input, n)))',
]";
    let found = step("rnn", own, &rows(8));
    assert!(found.iter().all(|x| x.is_finite()) && found.iter().any(|&x| x != 0.0));
    // A vector of scores for each of four steps: 3 × (2 × 3 + 3) weights, then (2 + 3) × 2 + 2.
    assert_eq!(found.len(), 1 + 27 + 12);
}

#[test]
fn layers_of_a_job_obey_the_laws() {
    let learner = network("mlp", MIXED).unwrap();
    check_within(&*learner, &|_| true, 1e-5).unwrap_or_else(|law| panic!("{law}"));
}

#[test]
fn layers_of_a_job_with_running_means_obey_the_laws() {
    let normal = "
layers = ['normal', 'linear 4', 'relu']
[[layer]]
name = 'normal'
compute = ['batch-norm(linear(input, 4, bias off))']";
    let learner = network("mlp", normal).unwrap();
    check_within(&*learner, &|_| true, 1e-5).unwrap_or_else(|law| panic!("{law}"));
}

fn refusal(line: &str, sizes: &str, compute: &str) -> String {
    let settings = format!(
        "layers = ['relu', '{line}']\n[[layer]]\nname = 'odd'\nsizes = [{sizes}]\ncompute = [{compute}]"
    );
    let made = network("mlp", &settings)
        .and_then(|learner| learner.init(&facts(&rows(5), 2), Place::WHOLE).map(|_| ()));
    made.err().map(|fault| fault.to_string()).unwrap_or_default()
}

#[test]
fn what_does_not_fit_names_layer_line_and_sizes() {
    let cases: [(&str, &str, &str, &[&str]); 12] = [
        (
            "odd",
            "",
            "'input + linear(input, 3)'",
            &["layer 2 'odd'", "5 numbers and 3 numbers", "added", "input + linear(input, 3)"],
        ),
        (
            "odd",
            "",
            "'matmul(input, weight(4, 2))'",
            &["layer 2 'odd'", "5 numbers", "4×2 weights"],
        ),
        ("odd", "", "'linear(input, width / 2)'", &["layer 2 'odd'", "'width / 2'", "no size"]),
        ("odd", "", "'conv(input, 4)'", &["layer 2 'odd'", "wants an image", "5 numbers"]),
        ("odd", "", "'ones(5)'", &["5 weights instead of rows"]),
        ("odd 3", "", "'input'", &["layer 2 'odd 3'", "1 sizes instead of 0"]),
        ("odd x", "'n'", "'linear(input, n)'", &["'x' for the n"]),
        ("odd", "", "'relux(input)'", &["[[layer]] odd", "relux", "'relu'"]),
        ("odd", "", "'odd(input)'", &["'odd' is neither a layer nor a function"]),
        ("odd", "", "'a + input'", &["layer 2 'odd'", "'a' is no value"]),
        ("odd", "", "'linear(input, 3', 'input'", &["has no name"]),
        ("odd", "", "'linear(input, 3'", &["[[layer]] odd", "')' is missing"]),
    ];
    for (line, sizes, compute, parts) in cases {
        let found = refusal(line, sizes, compute);
        parts.iter().for_each(|part| assert!(found.contains(part), "{compute}: {found}"));
    }
    let taken = network("mlp", "[[layer]]\nname = 'relu'\ncompute = ['input']").err();
    assert!(taken.unwrap().to_string().contains("'relu' is taken"));
}
