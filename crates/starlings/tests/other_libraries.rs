//! Models of other libraries, ONNX files, as members of ensembles: jobs from their text to the predictions of the saved
//! model, on one worker and on two; what is refused; and sites of which one uses another library. The files are made by
//! `bench/references/other_libraries.py`.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use starlings::{DataSpec, Job, Predictor, Report, Result, Surroundings, TrainOptions, train};
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../learn/tests/assets/onnx");

/// A folder with some of the files, as a job would have them beside it.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn with(files: &[&str]) -> Desk {
        let desk = Desk { folder: tempdir().unwrap() };
        for file in files {
            let name = format!("{file}.onnx");
            std::fs::copy(Path::new(FILES).join(&name), desk.path(&name)).unwrap();
        }
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn train(&self, data: &str, learner: &str, (out, workers): (&str, u32)) -> Result<Report> {
        let text =
            format!("[data]\n{data}\n[learner]\n{learner}\n[cluster]\nworkers = {workers}\n");
        let around = Surroundings { folder: self.folder.path().to_path_buf(), cores: 2 };
        let options = TrainOptions { out: Some(self.path(out)), ..TrainOptions::default() };
        train(Job::parse(&text, &[], &around)?, options).map(|trained| trained.report)
    }

    fn refused(&self, data: &str, learner: &str) -> String {
        let fault = self.train(data, learner, ("never", 1)).unwrap_err();
        format!("{fault} {}", fault.advice().unwrap_or_default())
    }

    fn predict(&self, model: &str, data: &str) -> starlings::Prediction {
        let data = match data.contains('.') {
            true => DataSpec::new(self.path(data).to_string_lossy()),
            false => DataSpec::new(data),
        };
        Predictor::load(&self.path(model)).unwrap().predict(&data).unwrap()
    }
}

const DIGITS: &str = "train = 'digits'\ntest = 'digits:test'";

#[test]
fn a_network_of_another_library_votes_beside_a_learner_on_two_workers() {
    let desk = Desk::with(&["torch-digits"]);
    let voting = "name = 'voting'\nmembers = [{ model = 'torch-digits.onnx', scale = 'logits', weight = 2 }, \
                  { name = 'naive-bayes' }]";
    let one = desk.train(DIGITS, voting, ("one", 1)).unwrap();
    let two = desk.train(DIGITS, voting, ("two", 2)).unwrap();
    assert!((one.objective - two.objective).abs() <= 1e-9 * one.objective.abs());
    assert!(two.evaluation["accuracy"] > 0.9, "{:?}", two.evaluation);
    let naive = desk.train(DIGITS, "name = 'naive-bayes'", ("naive", 2)).unwrap();
    assert!(two.evaluation["accuracy"] > naive.evaluation["accuracy"] + 0.02);
    // The model file holds the network, and needs its file no more.
    std::fs::remove_file(desk.path("torch-digits.onnx")).unwrap();
    let together = desk.predict("two", "digits:test");
    assert_eq!(together.names.len(), 10);
    assert_eq!(together.names[3], "p(3)");
    let naive = desk.predict("naive", "digits:test");
    let differ = together.classes.iter().zip(&naive.classes).filter(|(a, b)| a != b).count();
    assert!(differ > 10, "{differ}");
    let words = Predictor::load(&desk.path("two")).unwrap().describe().unwrap();
    assert!(words.contains("member 0: onnx") && words.contains("Gemm"), "{words}");
}

/// Rows of flowers with a header, as a job reads them; the last column is the class or left out.
fn flowers(columns: &[usize], label: bool) -> String {
    let text = std::fs::read_to_string(format!("{FILES}/../iris.csv")).unwrap();
    let names = ["sepal_length", "sepal_width", "length", "width"];
    let classes = ["setosa", "versicolor", "virginica"];
    let mut made: Vec<&str> = columns.iter().map(|column| names[*column]).collect();
    made.extend(label.then_some("class"));
    let mut all = made.join(",") + "\n";
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let mut row: Vec<&str> = columns.iter().map(|column| cells[*column]).collect();
        row.extend(label.then(|| classes[cells[4].parse::<usize>().unwrap()]));
        writeln!(all, "{}", row.join(",")).unwrap();
    }
    all
}

#[test]
fn files_alone_vote_and_the_best_of_a_bucket_may_be_one() {
    let desk = Desk::with(&["forest", "logistic", "torch", "tree"]);
    desk.write("iris.csv", &flowers(&[0, 1, 2, 3], true));
    desk.write("rows.csv", &flowers(&[0, 1, 2, 3], false));
    let data = "train = 'iris.csv'\nlabel = 'class'";
    let torch = "{ model = 'torch.onnx', classes = ['setosa', 'versicolor', 'virginica'] }";
    let only = "name = 'voting'\nmembers = [{ model = 'forest.onnx' }]";
    desk.train(data, only, ("forest", 2)).unwrap();
    // One file alone answers as it does in its own library.
    let figures = std::fs::read_to_string(format!(
        "{FILES}/../../../../../bench/references/other_libraries.json"
    ));
    let figures: serde_json::Value = serde_json::from_str(&figures.unwrap()).unwrap();
    let expected = figures["models"]["forest"]["said"].as_array().unwrap();
    let said = desk.predict("forest", "rows.csv").values;
    for (row, expected) in said.chunks(3).step_by(5).zip(expected.chunks(3)) {
        for (said, expected) in row.iter().zip(expected) {
            assert!((said - expected.as_f64().unwrap()).abs() <= 1e-5, "{row:?}");
        }
    }
    let bucket = format!(
        "name = 'bucket'\nmetric = 'accuracy'\nmembers = [{{ name = 'decision-tree', max_depth = 1 }}, {torch}]"
    );
    let report = desk.train(data, &bucket, ("bucket", 2)).unwrap();
    let metrics = &report.metrics;
    assert!(metrics["cross_validated_accuracy"] > 0.95, "{metrics:?}");
    assert_eq!(metrics["cross_validated_accuracy"], metrics["cross_validated_accuracy_1_onnx"]);
    assert!(metrics["cross_validated_accuracy_0_decision-tree"] < 0.7, "{metrics:?}");
    let bucket = format!("name = 'bucket'\nmembers = [{{ model = 'tree.onnx' }}, {torch}]");
    desk.train(data, &bucket, ("files", 1)).unwrap();
    assert_eq!(desk.predict("files", "rows.csv").classes.len(), 150);
    let stack = format!("name = 'stacking'\nmembers = [{{ model = 'logistic.onnx' }}, {torch}]");
    let report = desk.train(data, &stack, ("stack", 2)).unwrap();
    assert!(report.metrics["accuracy"] > 0.95, "{:?}", report.metrics);
}

#[test]
fn columns_with_names_are_found_wherever_they_stand() {
    let desk = Desk::with(&["columns"]);
    let mut text = String::from("size,width,extra,length,class\n");
    for line in flowers(&[0, 3, 2], true).lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let size = if cells[0].parse::<f32>().unwrap() > 5.8 { "large" } else { "small" };
        writeln!(text, "{size},{},7,{},{}", cells[1], cells[2], cells[3]).unwrap();
    }
    desk.write("flowers.csv", &text);
    let data = "train = 'flowers.csv'\nlabel = 'class'";
    let voting = "name = 'voting'\nmembers = [{ model = 'columns.onnx' }]";
    let report = desk.train(data, voting, ("model", 2)).unwrap();
    assert!(report.metrics["accuracy"] > 0.94, "{:?}", report.metrics);
    desk.write("other.csv", &text.replace("size,", "bulk,"));
    let fault = desk.refused("train = 'other.csv'\nlabel = 'class'", voting);
    assert!(fault.contains("columns.onnx") && fault.contains("the column 'size'"), "{fault}");
}

#[test]
fn files_that_do_not_fit_the_rows_are_refused_by_name() {
    let desk = Desk::with(&["logistic", "torch", "linear", "convolution", "tree", "margins"]);
    desk.write("iris.csv", &flowers(&[0, 1, 2, 3], true));
    desk.write("narrow.csv", &flowers(&[0, 1, 2], true));
    desk.write("damaged.onnx", "not a model");
    let data = "train = 'iris.csv'\nlabel = 'class'";
    let voting = |member: &str| format!("name = 'voting'\nmembers = [{{ {member} }}]");
    let fault =
        desk.refused("train = 'narrow.csv'\nlabel = 'class'", &voting("model = 'tree.onnx'"));
    assert!(
        fault.contains("tree.onnx") && fault.contains("4 features") && fault.contains("have 3"),
        "{fault}"
    );
    let fault = desk.refused(data, &voting("model = 'torch.onnx'"));
    assert!(fault.contains("none of the classes") && fault.contains("0, 1, 2"), "{fault}");
    assert!(fault.contains("classes = ["), "{fault}");
    let fault = desk.refused(data, &voting("model = 'convolution.onnx'"));
    assert!(fault.contains("convolution.onnx") && fault.contains("Conv"), "{fault}");
    let fault = desk.refused(data, &voting("model = 'damaged.onnx'"));
    assert!(fault.contains("damaged.onnx") && fault.contains("not an ONNX file"), "{fault}");
    let fault = desk.refused(data, &voting("model = 'nowhere.onnx'"));
    assert!(fault.contains("nowhere.onnx"), "{fault}");
    let fault = desk.refused(data, &voting("model = 'tree.onnx', max_depth = 3"));
    assert!(fault.contains("'max_depth'") && fault.contains("scale"), "{fault}");
    let fault = desk.refused(data, &voting("model = 'margins.onnx'"));
    assert!(fault.contains("no chances") && fault.contains("logits"), "{fault}");
    let fault = desk.refused(
        data,
        "name = 'voting'\nmembers = [{ model = 'linear.onnx' }, { name = 'naive-bayes' }]",
    );
    assert!(fault.contains("numbers") && fault.contains("classes"), "{fault}");
    let fault = desk.refused(data, "name = 'bagging'\nbase = { model = 'tree.onnx' }");
    assert!(fault.contains("trained already"), "{fault}");
    let text = flowers(&[0, 1, 2, 3], true).replace("5.1,", "short,");
    desk.write("texts.csv", &text);
    let fault =
        desk.refused("train = 'texts.csv'\nlabel = 'class'", &voting("model = 'tree.onnx'"));
    assert!(fault.contains("sepal_length") && fault.contains("texts"), "{fault}");
    assert!(!desk.path("never").exists());
}

/// The rule by which rows of digits fall to sites, as in the script.
fn site(world: &str, k: usize, label: usize) -> usize {
    let group = label % 3;
    match world {
        "alike" => k % 3,
        "skewed" if !k.is_multiple_of(10) => group,
        "skewed" => (group + 1 + k / 10 % 2) % 3,
        _ => (group + 1 + k % 2) % 3,
    }
}

/// Accuracy of the three sites alone, of both votes, of the stack, and of one model of all rows.
fn compare(world: &str) -> [f64; 7] {
    let desk = Desk::with(&[&format!("site-{world}")]);
    let mut text = String::new();
    let packed =
        std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/assets/digits.csv.gz"));
    flate2::read::GzDecoder::new(packed.unwrap()).read_to_string(&mut text).unwrap();
    let header = (0..64).map(|pixel| format!("p{pixel},")).collect::<String>() + "class\n";
    let mut files = ["site0", "site1", "site2", "sample", "test", "all"].map(|_| header.clone());
    for (row, line) in text.lines().enumerate() {
        let label: usize = line.rsplit(',').next().unwrap().parse().unwrap();
        let place = match row % 5 {
            4 => 4,
            3 => 3,
            _ => site(world, row / 5 * 3 + row % 5, label),
        };
        writeln!(files[place], "{line}").unwrap();
        if place < 3 {
            writeln!(files[5], "{line}").unwrap();
        }
    }
    for (name, text) in ["site0", "site1", "site2", "sample", "test", "all"].iter().zip(&files) {
        desk.write(&format!("{name}.csv"), text);
    }
    let accuracy = |data: &str, learner: &str| {
        let data = format!("train = '{data}.csv'\ntest = 'test.csv'\nlabel = 'class'");
        desk.train(&data, learner, ("model", 2)).unwrap().evaluation["accuracy"]
    };
    let learners =
        ["name = 'logistic-regression'\nl2 = 1e-2", "name = 'random-forest'\ntrees = 20"];
    let mut figures = [0.0; 7];
    for (at, learner) in learners.iter().enumerate() {
        figures[at] = accuracy(&format!("site{at}"), learner);
        std::fs::rename(desk.path("model"), desk.path(&format!("site{at}"))).unwrap();
    }
    let member = format!("{{ model = 'site-{world}.onnx' }}");
    figures[2] = accuracy("sample", &format!("name = 'voting'\nmembers = [{member}]"));
    let members = format!("members = [{{ model = 'site0' }}, {{ model = 'site1' }}, {member}]");
    figures[3] = accuracy("sample", &format!("name = 'voting'\nvoting = 'hard'\n{members}"));
    figures[4] = accuracy("sample", &format!("name = 'voting'\n{members}"));
    figures[5] = accuracy("sample", &format!("name = 'stacking'\n{members}"));
    figures[6] = accuracy("all", learners[0]);
    tell(world, &figures);
    figures
}

/// A row of the book's table.
#[allow(clippy::print_stderr, reason = "the figures of the book are taken from here")]
fn tell(world: &str, figures: &[f64; 7]) {
    let three: Vec<String> = figures.iter().map(|figure| format!("{figure:.3}")).collect();
    eprintln!("| {world} | {} | {} |", three[..3].join(", "), three[3..].join(" | "));
}

#[test]
fn sites_of_which_one_uses_another_library_lose_little_where_they_are_alike() {
    let [a, b, c, hard, soft, stack, all] = compare("alike");
    let figures = format!("{a} {b} {c} hard {hard} soft {soft} stack {stack} all {all}");
    assert!(a.min(b).min(c) > 0.85, "{figures}");
    assert!(soft > all - 0.03 && hard > all - 0.04 && stack > all - 0.05, "{figures}");
}

#[test]
fn unlike_sites_of_which_one_uses_another_library_need_each_other() {
    let [a, b, c, hard, soft, stack, all] = compare("skewed");
    let figures = format!("{a} {b} {c} hard {hard} soft {soft} stack {stack} all {all}");
    let best = a.max(b).max(c);
    assert!(best < all - 0.03, "{figures}");
    assert!(stack > best, "who learns whom to believe is better than each: {figures}");
    let [a, b, c, hard, soft, stack, all] = compare("apart");
    let figures = format!("{a} {b} {c} hard {hard} soft {soft} stack {stack} all {all}");
    let best = a.max(b).max(c);
    assert!(best < 0.8, "a third of the classes is never named: {figures}");
    assert!(soft > best + 0.1 && hard > best + 0.1 && stack > best + 0.1, "{figures}");
}
