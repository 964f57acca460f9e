//! Models of other libraries as ONNX files: their answers against onnxruntime's (`bench/references/other_libraries.py`
//! makes files and figures), what is refused, and bytes that somebody has changed.

use crate::world::figures;
use serde_json::Value;
use starlings_core::Rng;
use starlings_data::{ColumnKind, Target};
use starlings_learn::onnx::{Limits, Program, Wishes, bytes, tensors};
use std::io::Read;

fn file(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/assets/onnx");
    std::fs::read(format!("{folder}/{name}.onnx")).unwrap()
}

fn wishes(text: &str) -> Wishes {
    let mut table: toml::Table = text.parse().unwrap();
    let wishes = Wishes::take(&mut table).unwrap();
    assert!(table.is_empty(), "{table}");
    wishes
}

fn program(name: &str, said: &str) -> Result<Program, String> {
    Program::read(&file(name), &wishes(said), Limits::USE).map_err(|fault| {
        let hint = fault.advice().map(str::to_string).unwrap_or_default();
        format!("{fault} ({hint})")
    })
}

/// Lines of numbers without their last columns, and of them every so many.
fn numbers(text: &str, columns: usize, every: usize) -> Vec<f32> {
    let lines = text.lines().step_by(every);
    let cells = lines.flat_map(|line| line.split(',').take(columns));
    cells.map(|cell| cell.parse().unwrap()).collect()
}

/// The rows that the figures are of.
fn rows(data: &str, program: &Program) -> Vec<f32> {
    let iris = include_str!("../assets/iris.csv").split_once('\n').unwrap().1;
    match data {
        "iris" => numbers(iris, 4, 5),
        "iris-3" => numbers(iris, 3, 5),
        "digits" => {
            let mut text = String::new();
            let packed = &include_bytes!("../../../data/assets/digits.csv.gz")[..];
            flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
            numbers(&text, 64, 50)
        }
        "columns" => {
            let schema = program.schema();
            let ColumnKind::Categorical { codes } = &schema.columns[2].kind else {
                panic!("{schema:?}")
            };
            let code = |x: f32| {
                let text = if x > 5.8 { "large" } else { "small" };
                codes.iter().position(|code| code == text).unwrap() as f32
            };
            let rows = numbers(iris, 4, 5);
            rows.chunks(4).flat_map(|row| [row[2], row[3], code(row[0])]).collect()
        }
        other => panic!("{other}"),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_string()).collect()
}

#[test]
fn answers_are_those_of_the_reference_runtime() {
    let figures = figures("other_libraries");
    let models = figures["models"].as_object().unwrap();
    assert!(models.len() >= 29, "{}", models.len());
    for (name, told) in models {
        let program = program(name, told["wishes"].as_str().unwrap())
            .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let mut said = Vec::new();
        program.answer_dense(&rows(told["data"].as_str().unwrap(), &program), &mut said).unwrap();
        let classes = texts(&told["classes"]);
        if !classes.is_empty() {
            assert_eq!(program.schema().target, Target::Classes(classes), "{name}");
        }
        let expected: Vec<f64> =
            told["said"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        // Margins have no reference as chances; that they are chances is checked when they are read.
        if name == "margins" {
            assert_eq!(said.len(), 90);
            continue;
        }
        assert_eq!(said.len(), expected.len(), "{name}");
        for (said, expected) in said.iter().zip(&expected) {
            assert!((said - expected).abs() <= 1e-5, "{name}: {said} {expected}");
        }
    }
}

#[test]
fn columns_are_read_by_their_names_and_unknown_texts_as_such() {
    let program = program("columns", "").unwrap();
    let schema = program.schema();
    let names: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["length", "width", "size"]);
    let ask = |code: f32| {
        let mut said = Vec::new();
        program.answer_dense(&[4.5, 1.4, code], &mut said).unwrap();
        said
    };
    let ColumnKind::Categorical { codes } = &schema.columns[2].kind else { panic!("{schema:?}") };
    let [large, small] =
        ["large", "small"].map(|text| codes.iter().position(|c| c == text).unwrap());
    assert_ne!(ask(large as f32), ask(small as f32));
    assert_ne!(ask(f32::NAN), ask(small as f32));
    assert_eq!(ask(f32::NAN), ask(1e9));
}

#[test]
fn what_cannot_be_run_is_refused_with_operator_and_node() {
    let refused = |name: &str, said: &str| program(name, said).err().unwrap_or_default();
    let text = refused("convolution", "scale = 'logits'");
    assert!(text.contains("Conv") && text.contains("the node '"), "{text}");
    let text = refused("torch", "classes = ['one', 'two']");
    assert!(text.contains("3 numbers") && text.contains("one, two"), "{text}");
    let text = refused("torch", "classes = ['one', 'two', 'one']");
    assert!(text.contains("differ"), "{text}");
    let text = refused("torch", "output = 'z'");
    assert!(text.contains("no output 'z'") && text.contains("its outputs: y"), "{text}");
    let text = refused("linear", "scale = 'logits'");
    assert!(text.contains("no classes"), "{text}");
    assert!(Wishes::take(&mut "scale = 'odds'".parse().unwrap()).is_err());
    assert!(Wishes::take(&mut "classes = [1]".parse().unwrap()).is_err());
    let mut out = Vec::new();
    let fault = program("margins", "").unwrap().answer_dense(&[5.0, 3.0, 1.0, 0.2], &mut out);
    assert!(fault.unwrap_err().to_string().contains("no chances"));
    let fault = program("logistic", "").unwrap().answer_dense(&[f32::NAN; 4], &mut out);
    assert!(fault.unwrap_err().to_string().contains("no number"));
    // What is missing is the model's affair, and this one fills it in.
    program("pipeline", "").unwrap().answer_dense(&[f32::NAN; 4], &mut out).unwrap();
}

#[test]
fn a_file_may_stand_in_a_model() {
    for length in [0, 1, 7, 8, 9, 731] {
        let some = &file("boosting")[..length];
        assert_eq!(bytes(&tensors(some)).unwrap(), some);
    }
    assert!(bytes(&starlings_core::Model::new()).is_err());
}

/// Reads and asks, within little room. Whether it works is not asked: it must end, and not by a panic.
fn try_bytes(bytes: &[u8]) -> bool {
    let limits = Limits { numbers_max: 1 << 18, work_max: 1 << 22 };
    let Ok(program) = Program::read(bytes, &Wishes::default(), limits) else { return false };
    let width = program.features().min(100);
    let _ = program.answer_dense(&vec![1.5; width * 2], &mut Vec::new());
    true
}

#[test]
fn bytes_that_were_changed_or_cut_off_never_panic() {
    let names = [
        "logistic",
        "tree",
        "boosting",
        "boosting-binary",
        "mlp-binary",
        "columns",
        "naive-bayes",
        "adaboost",
        "polynomial",
        "lightgbm-binary",
        "torch",
        "pipeline",
        "bagging",
    ];
    let mut rng = Rng::named(1, "changed bytes", &[]);
    let (mut tried, mut ran) = (0, 0);
    for name in names {
        let whole = file(name);
        assert!(try_bytes(&whole), "{name}");
        for _ in 0..400 {
            let changed = starlings_testkit::decoders::mutated(&whole, &mut rng);
            tried += 1;
            ran += usize::from(try_bytes(&changed));
        }
        for cut in (0..whole.len()).step_by(7) {
            try_bytes(&whole[..cut]);
        }
    }
    // Both ways are tried: most changes break the file, and some do not.
    assert!(ran > tried / 50 && ran < tried, "{ran} of {tried}");
}
