//! Small data for every task, with the corners where learners tend to go wrong: fewer rows than shards, one
//! row, one feature, rows held sparse.

use starlings_core::Rng;
use starlings_data::{Column, ColumnKind, Encoding, Features, LabelNeed, Schema, Table, Target};
use starlings_learn::{Learner, Task};
use std::sync::Arc;

/// One data set.
pub(super) struct Case {
    /// What is special about it.
    pub(super) name: &'static str,
    /// The rows.
    pub(super) table: Arc<Table>,
    /// What they mean.
    pub(super) schema: Schema,
    /// Whether a learner of the task may not refuse it.
    pub(super) must_learn: bool,
}

/// The data sets of a learner: those of its task, unless it reads rows in a way of its own.
pub(super) fn cases(learner: &dyn Learner) -> Vec<Case> {
    match (learner.task(), learner.encoding(), learner.label()) {
        (Task::Clustering, Encoding::Identity, _) => vec![
            edges("edges", 60, true),
            edges("fewer rows than shards", 9, true),
            edges("one row", 1, false),
        ],
        (Task::Projection, _, LabelNeed::Class) => vec![
            counted("counts by class", (43, 5), true),
            sparse(counted("counts by class in sparse rows", (43, 5), false)),
            counted("fewer rows than shards", (9, 3), true),
            counted("one row", (1, 3), false),
            counted("one feature", (30, 1), true),
        ],
        (task, ..) => of_task(task),
    }
}

fn of_task(task: Task) -> Vec<Case> {
    match task {
        Task::Classification => vec![
            classes("two classes", (43, 5), 2, true),
            sparse(classes("two classes in sparse rows", (43, 5), 2, false)),
            classes("three classes", (43, 5), 3, false),
            sparse(classes("three classes in sparse rows", (43, 5), 3, false)),
            classes("fewer rows than shards", (9, 3), 2, true),
            classes("one row", (1, 3), 2, false),
            classes("one feature", (30, 1), 2, true),
        ],
        Task::Regression => vec![
            numbers("numbers", (43, 5), true),
            sparse(numbers("numbers in sparse rows", (43, 5), false)),
            numbers("fewer rows than shards", (9, 3), true),
            numbers("one row", (1, 3), false),
            numbers("one feature", (30, 1), true),
        ],
        Task::Clustering | Task::Density | Task::Projection | Task::Anomaly => vec![
            points("points", (60, 4), true),
            sparse(points("points in sparse rows", (60, 4), false)),
            points("fewer rows than shards", (9, 3), true),
            points("one row", (1, 3), false),
            points("one feature", (40, 1), true),
        ],
        Task::Ranking => vec![
            grouped("queries", (60, 4), true),
            grouped("fewer rows than shards", (9, 3), true),
            grouped("one row", (1, 3), false),
        ],
        Task::Recommendation => vec![
            ratings("ratings", 60, true),
            ratings("fewer rows than shards", 9, true),
            ratings("one row", 1, false),
        ],
        Task::Topics => vec![
            documents("documents", (40, 12), true),
            documents("fewer rows than shards", (9, 12), true),
            documents("one row", (1, 12), false),
            documents("one word", (20, 1), false),
        ],
    }
}

fn schema(features: usize, target: Target) -> Schema {
    Schema { columns: vec![], encoding: Encoding::OneHot, features, target, label: None }
}

fn dense(width: usize, values: Vec<f32>, labels: Vec<f32>) -> Arc<Table> {
    Arc::new(Table::new(Features::Dense { width, values }, labels))
}

/// Normal numbers, a third of them zero so that sparse rows have something to leave out.
fn normals(rng: &mut Rng, count: usize) -> Vec<f32> {
    let number = |_| if rng.below(3) == 0 { 0.0 } else { rng.normal() as f32 };
    (0..count).map(number).collect()
}

/// Classes that overlap: the first feature and chance decide. Every class occurs, if there are rows.
fn classes(name: &'static str, (rows, width): (usize, usize), count: usize, must: bool) -> Case {
    let mut rng = Rng::named(1, name, &[]);
    let values = normals(&mut rng, rows * width);
    let labels = (0..rows).map(|row| match row {
        row if row < count => row as f32,
        row if rng.uniform() < 0.7 => f32::from(u8::from(values[row * width] > 0.0)),
        _ => rng.below(count as u64) as f32,
    });
    let labels = labels.collect();
    let target = Target::Classes((0..count).map(|class| class.to_string()).collect());
    let table = dense(width, values, labels);
    Case { name, table, schema: schema(width, target), must_learn: must }
}

fn numbers(name: &'static str, (rows, width): (usize, usize), must: bool) -> Case {
    let mut rng = Rng::named(2, name, &[]);
    let values = normals(&mut rng, rows * width);
    let labels = values.chunks(width).map(|row| 2.0 * row[0] + 0.1 * rng.normal() as f32).collect();
    let table = dense(width, values, labels);
    Case { name, table, schema: schema(width, Target::Number), must_learn: must }
}

/// Rows in groups of five, graded 0 to 3 by the first feature and chance.
fn grouped(name: &'static str, size: (usize, usize), must: bool) -> Case {
    let case = numbers(name, size, must);
    let mut table = (*case.table).clone();
    table.labels.iter_mut().for_each(|label| *label = (*label + 1.5).round().clamp(0.0, 3.0));
    table.groups = (0..table.rows() as u32).map(|row| row / 5).collect();
    Case { table: Arc::new(table), ..case }
}

/// Points around three centres.
fn points(name: &'static str, (rows, width): (usize, usize), must: bool) -> Case {
    let mut rng = Rng::named(3, name, &[]);
    let noise = normals(&mut rng, rows * width);
    let centre = |at: usize| ((at / width) % 3) as f32 * 5.0;
    let values = noise.iter().enumerate().map(|(at, x)| centre(at) + x).collect();
    let table = dense(width, values, vec![]);
    Case { name, table, schema: schema(width, Target::None), must_learn: must }
}

/// Ratings of 4 items by 6 users.
fn ratings(name: &'static str, rows: usize, must: bool) -> Case {
    let mut rng = Rng::named(4, name, &[]);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let (user, item) = (rng.below(6) as f32, rng.below(4) as f32);
        values.extend([user, item]);
        labels.push(3.0 + (user - 2.5) * (item - 1.5) * 0.3 + 0.1 * rng.normal() as f32);
    }
    let column = |position, name: &str, count: u32| Column {
        name: name.to_string(),
        position,
        kind: ColumnKind::Categorical { codes: (0..count).map(|code| code.to_string()).collect() },
        missing: 0,
    };
    let schema = Schema {
        columns: vec![column(0, "user", 6), column(1, "item", 4)],
        encoding: Encoding::Identity,
        ..schema(2, Target::Number)
    };
    Case { name, table: dense(2, values, labels), schema, must_learn: must }
}

/// Edges among twelve nodes in two groups, with similarities; few lead from one group to the other.
fn edges(name: &'static str, rows: usize, must: bool) -> Case {
    let mut rng = Rng::named(6, name, &[]);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let group = (row % 2) as u64 * 6;
        let across = row % 9 == 8;
        let (source, target) =
            (group + rng.below(6), (group + rng.below(6) + u64::from(across) * 6) % 12);
        values.extend([source as f32, target as f32]);
        labels.push(if across { 0.1 } else { 0.5 + rng.uniform() as f32 });
    }
    let column = |position, name: &str| Column {
        name: name.to_string(),
        position,
        kind: ColumnKind::Categorical { codes: (0..12).map(|node| format!("{node:02}")).collect() },
        missing: 0,
    };
    let schema = Schema {
        columns: vec![column(0, "source"), column(1, "destination")],
        encoding: Encoding::Identity,
        ..schema(2, Target::Number)
    };
    Case { name, table: dense(2, values, labels), schema, must_learn: must }
}

/// Whole numbers whose size depends on the class.
fn counted(name: &'static str, size: (usize, usize), must: bool) -> Case {
    let case = classes(name, size, 2, must);
    let mut table = (*case.table).clone();
    let labels = table.labels.clone();
    if let Features::Dense { width, values } = &mut table.features {
        for (row, numbers) in values.chunks_exact_mut(*width).enumerate() {
            let first = &mut numbers[0];
            *first += labels[row];
            numbers.iter_mut().for_each(|x| *x = (x.abs() * 2.0).round());
        }
    }
    Case { table: Arc::new(table), ..case }
}

/// Documents of two kinds: words of the first half of the vocabulary, or of the second.
fn documents(name: &'static str, (rows, words): (usize, usize), must: bool) -> Case {
    let mut rng = Rng::named(5, name, &[]);
    let mut values = vec![0.0; rows * words];
    for (row, counts) in values.chunks_mut(words).enumerate() {
        for _ in 0..15 {
            let half = words.div_ceil(2) as u64;
            let word = rng.below(half) as usize + (row % 2) * (words / 2);
            counts[word] += 1.0;
        }
    }
    let table = dense(words, values, vec![]);
    sparse(Case { name, table, schema: schema(words, Target::None), must_learn: must })
}

/// The same rows, held sparse.
fn sparse(case: Case) -> Case {
    let Features::Dense { width, values } = &case.table.features else { return case };
    let (mut starts, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
    for row in values.chunks_exact(*width) {
        for (column, &value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as u32);
            kept.push(value);
        }
        starts.push(kept.len());
    }
    let features = Features::Sparse { width: *width, starts, columns, values: kept };
    let labels = case.table.labels.clone();
    Case { table: Arc::new(Table::new(features, labels)), ..case }
}
