//! Models that were trained apart, at sites whose rows must not move, combined: by vote, and by a learner that learns
//! whom to believe. What it costs that sites are unlike is shown beside the model of all rows.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use starlings::{DataSpec, Job, Predictor, Result, Rng, Surroundings, TrainOptions, train};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

const CENTRES: [[f64; 2]; 3] = [[0.0, 0.0], [2.2, 0.0], [1.1, 2.0]];
const CLASSES: [&str; 3] = ["oak", "ash", "elm"];

/// Rows of three clouds that overlap, by the share of each class, and a column of texts of which each site has its own.
fn rows(name: &str, count: usize, shares: [f64; 3]) -> String {
    let mut rng = Rng::named(7, name, &[]);
    let mut text = String::from("x,y,ward,class\n");
    for _ in 0..count {
        let chance = rng.uniform();
        let class = usize::from(chance >= shares[0]) + usize::from(chance >= shares[0] + shares[1]);
        let [x, y] = CENTRES[class].map(|at| at + rng.normal());
        let ward = if rng.uniform() < 0.5 { "north" } else { name };
        writeln!(text, "{x:.4},{y:.4},{ward},{}", CLASSES[class]).unwrap();
    }
    text
}

/// A folder with the rows of sites, of a sample that nobody was trained on, and of a test.
struct World {
    folder: TempDir,
}

const LEARNERS: [&str; 3] = [
    "name = 'logistic-regression'\nl2 = 1e-4",
    "name = 'decision-tree'\nmax_depth = 4",
    "name = 'naive-bayes'",
];
const EVEN: [f64; 3] = [0.334, 0.333, 0.333];

impl World {
    fn new(sites: [[f64; 3]; 3]) -> World {
        let world = World { folder: tempdir().unwrap() };
        let mut all = String::new();
        for (site, shares) in sites.into_iter().enumerate() {
            let text = rows(&format!("site{site}"), 300, shares);
            let skip = usize::from(site > 0);
            text.lines().skip(skip).for_each(|line| writeln!(all, "{line}").unwrap());
            world.write(&format!("site{site}.csv"), &text);
        }
        world.write("all.csv", &all);
        world.write("sample.csv", &rows("sample", 300, EVEN));
        let test = rows("test", 3000, EVEN);
        let bare = test.lines().map(|line| line.rsplit_once(',').unwrap().0);
        world.write("unlabelled.csv", &bare.map(|line| format!("{line}\n")).collect::<String>());
        world.write("test.csv", &test);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Trains and saves a model.
    fn train(&self, data: &str, learner: &str, out: &str) -> Result<()> {
        let text = format!("[data]\ntrain = '{data}'\nlabel = 'class'\n[learner]\n{learner}\n");
        let around = Surroundings { folder: self.folder.path().to_path_buf(), cores: 2 };
        let options = TrainOptions { out: Some(self.path(out)), ..TrainOptions::default() };
        train(Job::parse(&text, &[], &around)?, options).map(|_| ())
    }

    /// The share of the test rows that a model names rightly; rows of a class that it does not know are wrong.
    fn accuracy(&self, model: &str) -> f64 {
        let test = DataSpec::new(self.path("unlabelled.csv").to_string_lossy());
        let said = Predictor::load(&self.path(model)).unwrap().predict(&test).unwrap().classes;
        let labelled = std::fs::read_to_string(self.path("test.csv")).unwrap();
        let truths = labelled.lines().skip(1).map(|line| line.rsplit(',').next().unwrap());
        let hits = said.iter().zip(truths).filter(|(said, truth)| said == truth).count();
        hits as f64 / said.len() as f64
    }

    /// Trains all: the accuracy of each site's model, of both votes, of the stack, of the model of all rows.
    fn compare(&self) -> [f64; 7] {
        for (site, learner) in LEARNERS.iter().enumerate() {
            self.train(&format!("site{site}.csv"), learner, &format!("site{site}")).unwrap();
        }
        let members = "members = [{ model = 'site0' }, { model = 'site1' }, { model = 'site2' }]";
        let voting = |how: &str| format!("name = 'voting'\nvoting = '{how}'\n{members}");
        self.train("sample.csv", &voting("soft"), "soft").unwrap();
        self.train("sample.csv", &voting("hard"), "hard").unwrap();
        self.train("sample.csv", &format!("name = 'stacking'\n{members}"), "stack").unwrap();
        self.train("all.csv", LEARNERS[0], "all").unwrap();
        let alone = [0, 1, 2].map(|site| self.accuracy(&format!("site{site}")));
        // What was combined needs the files of the sites no more.
        (0..3).for_each(|site| std::fs::remove_file(self.path(&format!("site{site}"))).unwrap());
        let [soft, hard, stack, all] =
            ["soft", "hard", "stack", "all"].map(|model| self.accuracy(model));
        tell(&alone, &[hard, soft, stack, all]);
        [alone[0], alone[1], alone[2], soft, hard, stack, all]
    }
}

/// A row of the book's table: each alone, hard vote, soft vote, stacking, all rows.
#[allow(clippy::print_stderr, reason = "the figures of the book are taken from here")]
fn tell(alone: &[f64], together: &[f64]) {
    let three = |figures: &[f64]| -> Vec<String> {
        figures.iter().map(|figure| format!("{figure:.3}")).collect()
    };
    eprintln!("| {} | {} |", three(alone).join(", "), three(together).join(" | "));
}

#[test]
fn sites_that_are_alike_lose_nothing_by_staying_apart() {
    let [a, b, c, soft, hard, stack, all] = World::new([EVEN; 3]).compare();
    let figures = format!("{a} {b} {c} soft {soft} hard {hard} stack {stack} all {all}");
    assert!(a.min(b).min(c) > 0.7, "{figures}");
    assert!((soft - all).abs() < 0.03 && (hard - all).abs() < 0.03, "{figures}");
    assert!((stack - all).abs() < 0.03, "{figures}");
}

#[test]
fn sites_that_are_unlike_need_each_other() {
    let skewed = [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]];
    let [a, b, c, soft, hard, stack, all] = World::new(skewed).compare();
    let figures = format!("{a} {b} {c} soft {soft} hard {hard} stack {stack} all {all}");
    let best = a.max(b).max(c);
    assert!(best < all - 0.05, "a site alone knows its own class: {figures}");
    assert!(soft > best + 0.03, "together they know more: {figures}");
    assert!(hard < soft, "one vote a site drowns who is sure: {figures}");
    assert!(stack > all - 0.03, "who learns whom to believe is as good as all rows: {figures}");
}

#[test]
fn a_site_may_not_know_a_class() {
    let apart = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]];
    let [a, b, c, soft, _, stack, all] = World::new(apart).compare();
    let figures = format!("{a} {b} {c} soft {soft} stack {stack} all {all}");
    let best = a.max(b).max(c);
    assert!(best < 0.68, "one class in three is never named: {figures}");
    assert!(soft > best + 0.05 && stack > best + 0.05, "{figures}");
}

#[test]
fn models_that_do_not_fit_the_rows_are_refused_by_name() {
    let world = World::new([EVEN; 3]);
    world.train("site0.csv", LEARNERS[1], "site0").unwrap();
    let combine = |data: &str, member: &str| {
        let learner = format!("name = 'voting'\nmembers = [{{ {member} }}]");
        world.train(data, &learner, "never").unwrap_err().to_string()
    };
    world.write("other.csv", "x,z,ward,class\n1,2,north,oak\n2,1,north,ash\n");
    let fault = combine("other.csv", "model = 'site0'");
    assert!(fault.contains("site0") && fault.contains("the column 'y'"), "{fault}");
    world.write("strange.csv", "x,y,ward,class\n1,2,north,red\n2,1,north,blue\n");
    let fault = combine("strange.csv", "model = 'site0'");
    assert!(fault.contains("none of the classes") && fault.contains("ash"), "{fault}");
    let fault = combine("sample.csv", "model = 'nowhere'");
    assert!(fault.contains("nowhere"), "{fault}");
    world.write("damaged", "not a model");
    let fault = combine("sample.csv", "model = 'damaged'");
    assert!(fault.contains("not a model file"), "{fault}");
    let fault = combine("sample.csv", "model = 'site0', max_depth = 2");
    assert!(fault.contains("'max_depth'"), "{fault}");
    let bags = "name = 'bagging'\nbase = { model = 'site0' }";
    let fault = world.train("sample.csv", bags, "never").unwrap_err().to_string();
    assert!(fault.contains("trained already"), "{fault}");
    assert!(!Path::new(&world.path("never")).exists());
}

#[test]
fn a_model_of_prepared_columns_is_a_member_like_any_other() {
    let world = World::new([EVEN; 3]);
    let prepare = |steps: &str, learner: &str, out: &str| {
        let text = format!(
            "[data]\ntrain = 'site0.csv'\nlabel = 'class'\n{steps}\n[learner]\n{learner}\n"
        );
        let around = Surroundings { folder: world.folder.path().to_path_buf(), cores: 2 };
        let options = TrainOptions { out: Some(world.path(out)), ..TrainOptions::default() };
        train(Job::parse(&text, &[], &around).unwrap(), options).unwrap();
    };
    let scale = "[[prepare]]\nname = 'scale'\ncolumns = ['x', 'y']";
    let target = "[[prepare]]\nname = 'one-hot'\ncolumns = ['ward']";
    let squares = "[[prepare]]\nname = 'polynomial'\ncolumns = ['x', 'y']";
    prepare(&format!("{scale}\n{target}"), LEARNERS[0], "linear");
    prepare(&format!("{scale}\n{squares}"), LEARNERS[1], "tree");
    for model in ["linear", "tree"] {
        // Alone in a vote it answers as it does alone, whatever its rows were before they were its rows.
        let vote = format!("name = 'voting'\nmembers = [{{ model = '{model}' }}]");
        world.train("sample.csv", &vote, "vote").unwrap();
        let test = DataSpec::new(world.path("unlabelled.csv").to_string_lossy());
        let said = |path: &str| Predictor::load(&world.path(path)).unwrap().predict(&test).unwrap();
        let (own, vote) = (said(model), said("vote"));
        assert_eq!(own.classes, vote.classes, "{model}");
        assert!(own.values.iter().zip(&vote.values).all(|(a, b)| (a - b).abs() < 1e-6), "{model}");
    }
    let both = "members = [{ model = 'linear' }, { model = 'tree' }, { name = 'naive-bayes' }]";
    world.train("sample.csv", &format!("name = 'voting'\n{both}"), "both").unwrap();
    assert!(world.accuracy("both") > 0.75);
    prepare("[[prepare]]\nname = 'tf-idf'\ncolumns = ['ward']", LEARNERS[0], "words");
    let vote = "name = 'voting'\nmembers = [{ model = 'words' }]";
    let fault = world.train("sample.csv", vote, "never").unwrap_err().to_string();
    assert!(fault.contains("words of texts"), "{fault}");
}
