//! What does not fit is refused with the layer and the sizes; what explodes with the step.

use crate::world::{batch, contribution, facts, moment, network, table};
use starlings_data::Holding;
use starlings_learn::Place;
use starlings_testkit::drive::{Drive, drive};
use std::sync::Arc;

fn start(name: &str, settings: &str, width: usize) -> String {
    let table = table(width, vec![0.5; 4 * width], vec![0.0, 1.0, 0.0, 1.0]);
    let made = network(name, settings)
        .and_then(|learner| learner.init(&facts(&table, 2), Place::WHOLE).map(|_| ()));
    made.err().map(|fault| fault.to_string()).unwrap_or_default()
}

#[test]
fn shapes_that_do_not_fit_name_layer_and_sizes() {
    let cases: [(&str, usize, &[&str]); 11] = [
        ("shape = [1, 28, 28]", 64, &["[1, 28, 28]", "784", "64"]),
        ("shape = [28, 28]", 784, &["[28, 28]", "[channels, height, width]"]),
        ("", 63, &["63 features", "shape ="]),
        ("layers = ['linear 8', 'conv 4']", 64, &["layer 2 'conv 4'", "8 numbers"]),
        ("layers = ['max-pool 9']", 64, &["layer 1 'max-pool 9'", "9×9", "1×8×8"]),
        ("layers = ['conv 4', 'group-norm 3']", 64, &["layer 2", "4 channels", "3 groups"]),
        ("layers = ['convv 4']", 64, &["layer 1 'convv 4'", "'conv'"]),
        ("layers = ['conv 2', 'augment flip on']", 64, &["layer 2", "not the first layer"]),
        ("layers = ['augment shift 9']", 64, &["layer 1 'augment shift 9'", "9 pixels", "1×8×8"]),
        ("layers = ['linear 9', 'image 2 2 2']", 64, &["layer 2 'image 2 2 2'", "8 numbers", "9"]),
        ("loss = 'huber'", 64, &["\"huber\"", "for numbers"]),
    ];
    for (settings, width, parts) in cases {
        let found = start("cnn", settings, width);
        parts.iter().for_each(|part| assert!(found.contains(part), "{settings}: {found}"));
    }
    assert_eq!(start("cnn", "preset = 'lenet-5'", 784), "");
    assert_eq!(start("cnn", "preset = 'resnet-18'", 64), "");
}

#[test]
fn labels_that_the_task_cannot_learn_are_refused() {
    let rows = table(2, vec![0.5; 8], vec![0.0; 4]);
    let learner = network("mlp", "").unwrap();
    let one = learner.init(&facts(&rows, 1), Place::WHOLE).unwrap_err().to_string();
    assert!(one.contains("fewer than two classes"), "{one}");
    let learner = network("mlp", "task = 'regression'").unwrap();
    let classes = learner.init(&facts(&rows, 2), Place::WHOLE).unwrap_err().to_string();
    assert!(classes.contains("not numbers"), "{classes}");
}

#[test]
fn a_number_that_is_not_finite_is_named_with_its_row() {
    let rows = table(2, vec![0.5, 1.0, f32::NAN, 0.0], vec![0.0, 1.0]);
    let learner = network("mlp", "").unwrap();
    let model = learner.init(&facts(&rows, 2), Place::WHOLE).unwrap();
    let fault = contribution(&*learner, &model, &batch(&rows, &[2])).unwrap_err().to_string();
    assert!(fault.contains("feature 0 of row 1 is NaN"), "{fault}");
}

#[test]
fn a_loss_that_explodes_is_told_with_its_step() {
    let values = (0..64).map(|at| (at % 7) as f32 * 1e18).collect();
    let rows = table(2, values, (0..32).map(|row| row as f32).collect());
    let learner =
        network("mlp", "task = 'regression'\nsolver = 'sgd'\nlearning_rate = 10.0").unwrap();
    let options = Drive { batch: 8, ..Drive::default() };
    let holding = Holding::whole(Arc::new(rows.clone()), options.shards);
    let facts = options.facts(&facts(&rows, 1).schema, 32);
    let fault = drive(&*learner, &facts, &holding, &options).unwrap_err().to_string();
    assert!(fault.contains("diverged") && fault.contains("step"), "{fault}");
    assert!(fault.contains("learning_rate"), "{fault}");
}

/// 784 × 512 and 512 × 10 weights with biases: five numbers each under adam (twice weights, gradient, two means).
#[test]
fn what_a_network_takes_of_memory_is_foreseen() {
    let rows = table(784, vec![0.5; 4 * 784], vec![0.0, 1.0, 0.0, 1.0]);
    let of = |settings: &str| {
        let learner = network("mlp", &format!("hidden = [512]\n{settings}")).unwrap();
        learner.footprint(&facts(&rows, 10), &Place::WHOLE, 100).unwrap()
    };
    let (adam, sgd) = (of(""), of("solver = 'sgd'"));
    let weights = 785 * 512 + 513 * 10;
    assert_eq!((adam.model, sgd.model), (4 * 5 * weights, 4 * 3 * weights));
    // A row is 512 numbers after the first layer and after its function, then 10; each with its gradient.
    assert_eq!(adam.step, 100 * 2 * 4 * (512 + 512 + 10));
    assert_eq!(of("accumulate = 4").step, adam.step / 4);
    assert!(adam.largest.contains("layer 1 'linear 512' with 401920 weights"), "{}", adam.largest);
}

/// Parameters that would be left out in silence.
#[test]
fn what_has_no_effect_is_refused() {
    let cases = [
        ("mlp", "layers = ['linear 8', 'relu']\ndropout = 0.5", "dropout has no effect"),
        ("mlp", "layers = ['linear 8', 'relu']\nhidden = [4]", "hidden has no effect"),
        ("mlp", "layers = ['linear 8', 'relu']\nnorm = 'layer-norm'", "norm has no effect"),
        ("cnn", "layers = ['linear 8']\npreset = 'lenet-5'", "preset has no effect"),
        ("rnn", "layers = ['gru 8', 'last']\ncell = 'gru'", "cell has no effect"),
        ("transformer", "layers = ['linear 8', 'last']\nblocks = 3", "blocks has no effect"),
        ("transformer", "tokens = 4\nsteps = 2", "steps has no effect beside tokens"),
        ("rnn", "tokens = 4\nsteps = 2", "steps has no effect beside tokens"),
        ("mlp", "task = 'regression'\nlabel_smoothing = 0.1", "label_smoothing is for classes"),
        ("autoencoder", "shape = [8, 8]", "shape is for layers that are listed"),
        (
            "autoencoder",
            "encoder = ['linear 2']\ndecoder = ['linear 16']\nshape = [4, 4]",
            "[4, 4]",
        ),
        ("autoencoder", "encoder = ['linear 2']\ndecoder = ['linear 16']\ncode = 3", "code has no"),
        ("mlp", "solver = 'muon'\nmomentum = -0.5", "momentum = -0.5 is below 0"),
        ("mlp", "momentum = 0.5", "momentum has no effect where solver = \"adam\""),
        ("cnn", "rho = 0.5", "rho has no effect"),
        ("gan", "solver = 'sgd'\nbeta1 = 0.5", "beta1 has no effect where solver = \"sgd\""),
        ("vae", "solver = 'nesterov'\nepsilon = 1e-6", "epsilon has no effect"),
        ("mlp", "solver = 'rmsprop'\nbeta2 = 0.5", "beta2 has no effect"),
        ("mlp", "final_rate = 0.1", "final_rate has no effect where schedule = \"constant\""),
        ("mlp", "decay_steps = 9", "decay_steps has no effect"),
        ("mlp", "schedule = 'step'\ndecay_steps = 9", "decay_steps has no effect"),
        ("mlp", "schedule = 'cosine'\nstep_every = 9", "step_every has no effect"),
        ("transformer", "step_factor = 0.5", "step_factor has no effect"),
        ("rnn", "embedding = 8", "embedding has no effect where features are no tokens"),
        ("mlp", "epsilon = 0.0", "epsilon"),
        ("mlp", "beta1 = 1.0", "beta1"),
        ("mlp", "beta2 = 0.9999999999", "beta2"),
    ];
    for (name, settings, told) in cases {
        let found = start(name, settings, 16);
        assert!(found.contains(told) && found.contains("help:"), "{name} {settings}: {found}");
    }
    // What says the default says nothing.
    assert_eq!(start("mlp", "layers = ['linear 8']\nhidden = [256, 128]\ndropout = 0.0", 16), "");
}

#[test]
fn what_is_no_token_is_refused_for_every_goal() {
    let (labels, classes) = (vec![0.0, 1.0], 2);
    for (name, more) in [("transformer", "width = 8"), ("rnn", ""), ("rnn", "task = 'regression'")]
    {
        for value in [0.5, -3.0, 100.0, 1e9] {
            let rows = table(3, vec![0.0, 1.0, 3.0, 2.0, value, 0.0], labels.clone());
            let learner = network(name, &format!("tokens = 4\n{more}")).unwrap();
            let outputs = if more.contains("regression") { 1 } else { classes };
            let model = learner.init(&facts(&rows, outputs), Place::WHOLE).unwrap();
            let fault =
                contribution(&*learner, &model, &batch(&rows, &[2])).unwrap_err().to_string();
            let told = format!("feature 1 of row 1 is {value}, which is no token");
            assert!(fault.contains(&told) && fault.contains("from 0 to 3"), "{fault}");
            let asked = learner.predict(&model, &batch(&rows, &[2]), &mut Vec::new());
            assert!(asked.unwrap_err().to_string().contains(&told), "{name}");
        }
    }
}

/// A hundred brackets were a hundred calls, and thirty thousand the end of the stack.
#[test]
fn brackets_that_are_too_deep_are_refused() {
    for (open, close) in [("(", ")"), ("exp(", ")"), ("-", ""), ("1 + ", "")] {
        let line = format!("{}input{}", open.repeat(30_000), close.repeat(30_000));
        let settings = format!("layers = ['odd']\n[[layer]]\nname = 'odd'\ncompute = ['{line}']");
        let found = start("mlp", &settings, 4);
        assert!(found.contains("at most 1000 words"), "{}", &found[..200.min(found.len())]);
    }
    let line = format!("{}input{}", "(".repeat(100), ")".repeat(100));
    let settings = format!("layers = ['odd']\n[[layer]]\nname = 'odd'\ncompute = ['{line}']");
    let found = start("mlp", &settings, 4);
    assert!(found.contains("more than 64 deep"), "{found}");
}

/// Rows of weight zero are not there, and one of weight two is there twice: the step is the same.
#[test]
fn a_row_counts_as_often_as_its_weight_says() {
    let step = |values: Vec<f32>, labels: Vec<f32>, weights: Option<Vec<f32>>| {
        let count = labels.len();
        let mut rows = table(2, values, labels);
        rows.weights = weights.unwrap_or_default();
        let learner = network("mlp", "hidden = []\nsolver = 'sgd'\nlearning_rate = 1.0").unwrap();
        let mut model = learner.init(&facts(&rows, 2), Place::WHOLE).unwrap();
        let update = contribution(&*learner, &model, &batch(&rows, &[count])).unwrap();
        learner.apply(&mut model, &update, &moment(count as u64)).unwrap();
        starlings_core::Values::clone(&model.get("00-linear.weight").unwrap().values)
    };
    let plain = step(vec![1.0, 0.5, -2.0, 0.25], vec![0.0, 1.0], None);
    let with_nobody =
        step(vec![1.0, 0.5, 9.0, 9.0, -2.0, 0.25], vec![0.0, 0.0, 1.0], Some(vec![1.0, 0.0, 1.0]));
    assert_eq!(plain, with_nobody);
    let twice =
        step(vec![1.0, 0.5, 1.0, 0.5, -2.0, 0.25, 3.0, 1.0], vec![0.0, 0.0, 1.0, 1.0], None);
    let by_weight =
        step(vec![1.0, 0.5, -2.0, 0.25, 3.0, 1.0], vec![0.0, 1.0, 1.0], Some(vec![2.0, 1.0, 1.0]));
    assert_eq!(twice, by_weight);
}

/// A stage takes what its layers take, a part what it has of them and, for a while, the whole of a matrix that it draws.
#[test]
fn what_stages_and_parts_take_of_memory_is_foreseen() {
    let rows = table(4, vec![0.5; 16], vec![0.0, 1.0, 0.0, 1.0]);
    let learner = network("mlp", "hidden = [64, 32]\nsolver = 'sgd'").unwrap();
    let of = |place: &Place| learner.footprint(&facts(&rows, 2), place, 10).unwrap();
    let cut = |stage| Place { layers: vec![2, 3], ..Place::stage(stage, 2) };
    let (whole, first, second) = (of(&Place::WHOLE), of(&cut(0)), of(&cut(1)));
    assert_eq!(first.model, 4 * 3 * (5 * 64));
    assert_eq!(first.model + second.model, whole.model);
    assert_eq!(first.step + second.step, whole.step);
    assert!(second.largest.contains("layer 3 'linear 32'"), "{}", second.largest);
    let part = of(&Place { parts: 2, ..Place::stage(0, 2) });
    assert!(part.model < whole.model && part.model > whole.model / 2, "{}", part.model);
    let gan = network("gan", "hidden = [64]\ncode = 3\nsolver = 'sgd'").unwrap();
    let both = gan.footprint(&facts(&rows, 0), &Place::WHOLE, 10).unwrap();
    assert_eq!(both.model, 4 * 3 * ((4 * 64 + 65 * 4) + (5 * 64 + 65)));
    let attends = network("transformer", "width = 8\nheads = 2\nblocks = 1").unwrap();
    let wide = table(100, vec![0.5; 200], vec![0.0, 1.0]);
    let step = attends.footprint(&facts(&wide, 2), &Place::WHOLE, 1).unwrap().step;
    assert!(step > 4 * 2 * 100 * 100, "each of two heads has a number for each two steps: {step}");
}
