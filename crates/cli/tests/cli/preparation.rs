//! Preparation inside the model, from job to prediction of raw files; weights and groups; and the refusals of all of them.

use crate::program::{Ended, starlings};
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

const STEPS: &str = "[[prepare]]\nname = 'impute'\nstrategy = 'median'\ncolumns = ['size']\n\
                     [[prepare]]\nname = 'scale'\ncolumns = ['size']\n\
                     [[prepare]]\nname = 'one-hot'\nmax_categories = 3\ncolumns = ['colour']\n\
                     [[prepare]]\nname = 'target-encoding'\ncolumns = ['town']\n\
                     [[prepare]]\nname = 'tf-idf'\nn_gram_max = 2\ncolumns = ['note']\n";
const JOB: &str = "[data]\ntrain = 'train.csv'\ntest = 'test.csv'\nlabel = 'bought'\n\
                   [learner]\nname = 'logistic-regression'\nl2 = 1e-2\n[cluster]\nworkers = 2\n";

/// Rows whose label follows from a word of the note, the colour and the size.
fn write_shop(path: &Path, rows: std::ops::Range<u32>) {
    let mut text = String::from("colour,size,town,note,bought\n");
    for row in rows {
        let colour = ["red", "green", "blue", "grey", "red", "green"][(row * 7 % 6) as usize];
        let size = if row % 11 == 0 { String::new() } else { (row * 13 % 17).to_string() };
        let town = ["Rome", "Oslo", "Lima", "Bonn", "Kyiv"][(row * row % 5) as usize];
        let good = row * 5 % 7 < 3;
        let note = if good { "a very good one" } else { "not so bad" };
        let odd = row % 23 == 0;
        let label = if (good || colour == "red") != odd { "yes" } else { "no" };
        text += &format!("{colour},{size},{town},\"{note}\",{label}\n");
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_prepared_model_predicts_raw_files_as_its_report_says() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_shop(&at("train.csv"), 0..400);
    write_shop(&at("test.csv"), 400..600);
    std::fs::write(at("shop.toml"), format!("{JOB}{STEPS}")).unwrap();
    let report = starlings(folder.path(), &["train", "shop.toml", "--json"]).report();
    assert!(report["evaluation"]["accuracy"].as_f64().unwrap() > 0.9, "{report}");

    let alone = ["train", "shop.toml", "--json", "--workers", "1", "--out", "alone.safetensors"];
    let single = starlings(folder.path(), &alone).report();
    let near = |a: &Value, b: &Value| {
        let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
        assert!((a - b).abs() < 1e-6 * a.abs(), "{a} {b}");
    };
    near(&report["objective"], &single["objective"]);
    let apart =
        ["train", "shop.toml", "--json", "--launcher", "processes", "--out", "p.safetensors"];
    near(&report["objective"], &starlings(folder.path(), &apart).report()["objective"]);

    let ended =
        starlings(folder.path(), &["evaluate", "shop.safetensors", "--data", "test.csv", "--json"]);
    let evaluated: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(evaluated["metrics"], report["evaluation"]);
    let ended = starlings(folder.path(), &["predict", "shop.safetensors", "--data", "test.csv"]);
    assert_eq!(ended.out.lines().count(), 201);
    // A file with a town, a colour and words that training did not show.
    std::fs::write(at("new.csv"), "colour,size,town,note\npink,3,Mars,unheard of\n").unwrap();
    let ended = starlings(folder.path(), &["predict", "shop.safetensors", "--data", "new.csv"]);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 2), "{ended:?}");
}

#[test]
fn an_unseen_category_is_an_error_where_the_job_wants_it() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_shop(&at("train.csv"), 0..200);
    let step =
        "[[prepare]]\nname = 'one-hot'\nunseen = 'error'\ncolumns = ['colour', 'town', 'note']\n";
    let job = format!("{JOB}{step}").replace("test = 'test.csv'\n", "");
    std::fs::write(at("shop.toml"), job).unwrap();
    starlings(folder.path(), &["train", "shop.toml", "--json"]).report();
    std::fs::write(at("new.csv"), "colour,size,town,note\npink,3,Rome,not so bad\n").unwrap();
    starlings(folder.path(), &["predict", "shop.safetensors", "--data", "new.csv"])
        .failed(2, &["one-hot", "column 'colour'", "'pink'"]);
}

#[test]
fn documents_are_learnt_from_a_text_file() {
    let folder = tempdir().unwrap();
    let line = |row: u32| match row % 3 {
        0 => "ham\tsee you at lunch\n",
        1 => "spam\tbuy cheap pills now\n",
        _ => "ham\tlunch was cheap\n",
    };
    let text: String = (0..90).map(line).collect();
    std::fs::write(folder.path().join("mail.txt"), text).unwrap();
    let job = "[data]\ntrain = 'mail.txt'\nformat = 'text'\n[[prepare]]\nname = 'hashed-n-grams'\nfeatures = 1024\n\
               [learner]\nname = 'logistic-regression'\nl2 = 1e-3\n";
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let report = starlings(folder.path(), &["train", "job.toml", "--json"]).report();
    assert_eq!(report["metrics"]["accuracy"], 1.0, "{report}");
}

/// Trains a learner on a file with these lines.
fn train(data: &str, keys: &str, learner: &str) -> Ended {
    let folder = tempdir().unwrap();
    let job = format!(
        "[data]\ntrain = 'data.csv'\n{keys}\n[learner]\n{learner}\n[cluster]\nworkers = 2\n"
    );
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    std::fs::write(folder.path().join("data.csv"), data).unwrap();
    starlings(folder.path(), &["train", "job.toml", "--json"])
}

#[test]
fn bad_weights_groups_and_numbers_are_named_by_row_and_column() {
    const LOGISTIC: &str = "name = 'logistic-regression'";
    let data = "w,q,x,y\n1,a,1,0\n2,a,2,1\n1,b,3,0\n";
    train(data, "weight = 'wight'", "name = 'boosted-stumps'")
        .failed(2, &["weights", "boosted-stumps"]);
    train(data, "weight = 'w'", "name = 'boosted-stumps'")
        .failed(2, &["'boosted-stumps' counts every row alike", "leave out [data] weight"]);
    train(data, "group = 'quiz'", LOGISTIC).failed(2, &["data.csv", "no column 'quiz'"]);
    train("q,x,y\na,1,0\nb,2,1\na,3,0\n", "group = 'q'", LOGISTIC)
        .failed(2, &["data.csv, row 2", "group 'a'", "sort the file"]);
    train(data, "group = 'q'\nlabel = 'y'", LOGISTIC).report();
    train("x,y\n1,0\n1e39,1\n", "", LOGISTIC)
        .failed(2, &["data.csv, line 3, column 'x'", "'1e39'"]);
    train("0 1:1\n1 999999999:1\n", "format = 'libsvm'", LOGISTIC)
        .failed(2, &["data.csv, line 2", "index 999999999", "limit"]);
}

#[test]
fn steps_that_cannot_be_are_refused_with_the_nearest_right_word() {
    const LOGISTIC: &str = "name = 'logistic-regression'";
    let data = "x,town,y\n1,Rome,0\n2,Oslo,1\n3,Rome,0\n";
    let slips = [
        ("name = 'scalee'", "did you mean 'scale'?"),
        ("name = 'scale'\nknid = 'robust'", "did you mean 'kind'?"),
        ("name = 'scale'\ncolumns = ['z']", "no column 'z'"),
        ("name = 'scale'\ncolumns = ['town']", "column 'town' holds texts"),
        ("name = 'scale'\ncolumns = 'x'", "columns must be a list of names"),
        ("name = 'impute'\nstrategy = 'guess'", "strategy = \"guess\" is not allowed"),
    ];
    for (step, words) in slips {
        train(data, &format!("[[prepare]]\n{step}"), LOGISTIC).failed(2, &[words]);
    }
    train(data, "[prepare]\nname = 'scale'", LOGISTIC).failed(2, &["[[prepare]]", "list of steps"]);
}
