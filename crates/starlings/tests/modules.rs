//! A training loop that a user wrote with Burn, made distributed: how many lines that takes, and that the weights are those of
//! one process, also when members have unequal shares, draw other first weights, or vanish.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Device, Tensor, TensorData};
use starlings::{Flock, FlockHost, FlockOptions, Result, codec};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn source(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The lines that lead from one text to another, with `+` and `-` as `diff` shows them: a longest common subsequence.
fn difference(from: &str, to: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (from.lines().collect(), to.lines().collect());
    let mut common = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = match a[i] == b[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("-{}", a[i]));
            i += 1;
        } else {
            lines.push(format!("+{}", b[j]));
            j += 1;
        }
    }
    lines
}

#[test]
fn a_loop_becomes_distributed_in_fewer_than_ten_lines_and_the_book_shows_them() {
    let lines = difference(&source("burn_loop_alone.rs"), &source("burn_loop.rs"));
    assert!(lines.len() < 10, "{} lines:\n{}", lines.len(), lines.join("\n"));
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/library.md");
    let book = std::fs::read_to_string(book).unwrap();
    for line in lines {
        assert!(book.lines().any(|other| other == line), "book/library.md does not show\n{line}");
    }
}

/// An example that `cargo test` has built.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join("examples").join(name)
}

/// What each process printed: one line of numbers.
fn printed(output: Output) -> Vec<Vec<f32>> {
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let numbers = |line: &str| line.trim_matches(['[', ']']).split(", ").map(number).collect();
    text.lines().map(numbers).collect()
}

fn number(word: &str) -> f32 {
    word.parse().unwrap_or_else(|_| panic!("'{word}' is no number"))
}

fn assert_near(found: &[f32], expected: &[f32], bound: f32) {
    assert_eq!(found.len(), expected.len());
    let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart <= bound, "{apart} apart:\n{found:?}\n{expected:?}");
}

#[test]
fn two_and_three_processes_end_with_the_weights_of_one() {
    let alone = printed(Command::new(example("burn_loop_alone")).output().unwrap());
    assert_eq!((alone.len(), alone[0].len()), (1, 32));
    let three = printed(Command::new(example("burn_loop")).output().unwrap());
    // Another launcher: it hosts the flock and tells its processes where to join.
    let host = FlockHost::start(2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ticket = folder.path().join("ticket");
    host.ticket().save(&ticket).unwrap();
    let start = |_| {
        let mut command = Command::new(example("burn_loop"));
        command.env("STARLINGS_JOIN", host.address().to_string()).env("STARLINGS_TICKET", &ticket);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let members: Vec<_> = (0..2).map(start).collect();
    host.wait().unwrap();
    let two: Vec<_> =
        members.into_iter().flat_map(|it| printed(it.wait_with_output().unwrap())).collect();
    for (members, found) in [(3, three), (2, two)] {
        assert_eq!(found.len(), members);
        found.iter().for_each(|weights| assert_eq!(weights, &found[0], "members differ"));
        assert_near(&found[0], &alone[0], 1e-5);
    }
}

#[test]
fn half_of_what_a_launcher_says_is_refused() {
    let output = Command::new(example("burn_loop")).env("STARLINGS_JOIN", "127.0.0.1:1").output();
    let output = output.unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("STARLINGS_TICKET"));
}

/// Runs the same loop on threads of this process, joined over TCP as real members are.
fn fly<T: Send>(
    members: u32,
    options: impl FnOnce(FlockOptions) -> FlockOptions,
    work: impl Fn(Flock) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let host = FlockHost::start(members).unwrap();
    let plain = FlockOptions::new(&host.address().to_string(), host.ticket().clone()).unwrap();
    let options = options(plain);
    std::thread::scope(|scope| {
        let member = || scope.spawn(|| work(Flock::join(&options)?));
        let threads: Vec<_> = (0..members).map(|_| member()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// One layer that learns, one that nobody uses, one that is frozen.
#[derive(Module, Debug)]
struct Odd {
    used: Linear,
    unused: Linear,
    frozen: Param<Tensor<1>>,
}

impl Odd {
    fn new(outputs: usize) -> Odd {
        let device = Device::flex().autodiff();
        let frozen = Tensor::from_data(TensorData::new(vec![2.0f32; 2], [2]), &device);
        Odd {
            used: LinearConfig::new(2, outputs).init(&device),
            unused: LinearConfig::new(2, 2).init(&device),
            frozen: Param::from_tensor(frozen).set_require_grad(false),
        }
    }

    /// The mean over rows of a sum of squares, and its gradients.
    fn gradients(&self, rows: &[[f32; 2]]) -> GradientsParams {
        let device = Device::flex().autodiff();
        // The mean over no rows is no number.
        let rows = if rows.is_empty() { &[[f32::NAN; 2]] } else { rows };
        let data = TensorData::new(rows.concat(), [rows.len(), 2]);
        let rows = Tensor::<2>::from_data(data, &device) * self.frozen.val().unsqueeze::<2>();
        let loss = self.used.forward(rows).square().sum_dim(1).mean();
        GradientsParams::from_grads(loss.backward(), self)
    }

    /// All numbers that are weights, the frozen last.
    fn numbers(&self) -> Vec<f32> {
        let layers = [&self.used, &self.unused];
        let of = |layer: &Linear| {
            let bias = layer.bias.as_ref().map(|bias| bias.val()).unwrap();
            [read(layer.weight.val().flatten(0, 1)), read(bias)].concat()
        };
        let frozen = read(self.frozen.val());
        layers.into_iter().flat_map(of).chain(frozen).collect()
    }
}

fn read(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_vec_as::<f32>().unwrap()
}

const ROWS: [[f32; 2]; 7] =
    [[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0], [2.0, 2.0], [-2.0, 1.0], [0.5, 0.25], [1.5, -1.0]];

/// One step from the given model on the given rows.
fn stepped(model: &Odd, rows: &[[f32; 2]]) -> Vec<f32> {
    let gradients = model.gradients(rows);
    SgdConfig::new().init().step(0.1, model.clone(), gradients).numbers()
}

fn rows_of(flock: &Flock) -> &'static [[f32; 2]] {
    let rows = flock.lease_rows(ROWS.len() as u64);
    &ROWS[rows.start as usize..rows.end as usize]
}

#[test]
fn unequal_shares_count_by_their_rows_and_everyone_begins_alike() {
    // Nine members for seven rows: two have none.
    for members in [2, 3, 9] {
        let results = fly(
            members,
            |options| options,
            |mut flock| {
                let model = flock.broadcast_weights(Odd::new(3))?;
                let (start, rows) = (model.clone(), rows_of(&flock));
                let gradients = flock.mean_gradients(model.gradients(rows), &model, rows.len())?;
                let mean = [gradients.len(), start.gradients(&ROWS).len()];
                let model = SgdConfig::new().init().step(0.1, model, gradients);
                flock.leave()?;
                Ok((start.numbers(), stepped(&start, &ROWS), model.numbers(), mean))
            },
        );
        let results: Vec<_> = results.into_iter().map(|result| result.unwrap()).collect();
        for (start, expected, found, mean) in &results {
            assert_eq!(start, &results[0].0, "others began elsewhere");
            assert_eq!(found, &results[0].2, "others went elsewhere");
            assert_near(found, expected, 1e-5);
            assert_ne!(start, found);
            assert_eq!(mean, &[2, 2], "what nobody used, and what is frozen, has no gradient");
        }
    }
}

#[test]
fn a_step_is_finished_by_those_who_are_left_and_their_rows_weigh_more() {
    let results = fly(
        3,
        |options| options,
        |mut flock| {
            let (first, mine) = (flock.seat().0, rows_of(&flock));
            let model = flock.broadcast_weights(Odd::new(1))?;
            if first == 1 {
                return Ok(None);
            }
            let gradients = flock.mean_gradients(model.gradients(mine), &model, mine.len())?;
            let found = SgdConfig::new().init().step(0.1, model.clone(), gradients).numbers();
            // From the next step on the rows are dealt out anew.
            assert_eq!(flock.world(), 2);
            let rows = rows_of(&flock);
            let whole = flock.mean_gradients(model.gradients(rows), &model, rows.len())?;
            let whole = SgdConfig::new().init().step(0.1, model.clone(), whole).numbers();
            flock.leave()?;
            Ok(Some((model, mine, found, whole)))
        },
    );
    let results: Vec<_> = results.into_iter().filter_map(|result| result.unwrap()).collect();
    assert_eq!(results.len(), 2);
    let left: Vec<[f32; 2]> = results.iter().flat_map(|(_, mine, ..)| mine.to_vec()).collect();
    assert!(left.len() < ROWS.len());
    for (model, _, found, whole) in &results {
        assert_near(found, &stepped(model, &left), 1e-5);
        assert_near(whole, &stepped(model, &ROWS), 1e-5);
    }
}

/// Members vanish one after another, before, between and inside sums, and gradients are turned into blocks anew for each
/// attempt: the others finish with the same bits, and know whose gradients are in the mean. Rank i has 2^i everywhere, so
/// that a mean names its contributors. Small sums and those of which nobody keeps a copy, in one block and in several.
#[test]
fn gradients_are_made_again_for_each_sum_that_a_member_was_lost_in() {
    let layer =
        |inputs| -> Linear { LinearConfig::new(inputs, 300).init(&Device::flex().autodiff()) };
    for (inputs, by_matrix) in [(2, false), (300, false), (2, true), (300, true)] {
        let shapes = |options: FlockOptions| match by_matrix {
            true => options.for_network(&layer(inputs)),
            false => options,
        };
        let results = fly(4, shapes, |mut flock| {
            let (first, model) = (flock.seat().0, flock.broadcast_weights(layer(inputs))?);
            let mut histories = Vec::new();
            for round in 0..8 {
                // Rank 1 goes after two rounds, rank 3 after four, rank 0 after six.
                if [6, 2, 99, 4][first as usize] == round {
                    return Ok((first, histories));
                }
                let (mine, device) = ((1 << first) as f32, Device::flex());
                let mut gradients = GradientsParams::new();
                let bias = model.bias.as_ref().unwrap().id;
                gradients
                    .register(model.weight.id, Tensor::<2>::full([inputs, 300], mine, &device));
                gradients.register(bias, Tensor::<1>::full([300], mine, &device));
                let mean = flock.mean_gradients(gradients, &model, 1)?;
                let weight = mean.get::<2>(model.weight.id).unwrap().flatten(0, 1);
                let numbers = [read(weight), read(mean.get::<1>(bias).unwrap())].concat();
                let members = flock.participants().iter().map(|seat| 1 << seat.0).sum::<u32>();
                let expected = members as f32 / flock.participants().len() as f32;
                assert_near(&numbers, &vec![expected; numbers.len()], 1e-5);
                histories.push((members, numbers[0].to_bits()));
            }
            flock.leave()?;
            Ok((first, histories))
        });
        let mut histories: Vec<_> = results.into_iter().map(|result| result.unwrap()).collect();
        histories.sort();
        let last = histories[2].1.clone();
        for (rank, history) in &histories {
            assert_eq!(*history, last[..history.len()], "rank {rank} saw other means");
        }
        assert_eq!((last.len(), last[0].0, last[7].0), (8, 0b1111, 0b0100));
    }
}

#[test]
fn members_with_other_networks_are_refused() {
    let results = fly(
        2,
        |options| options,
        |mut flock| {
            let outputs = 1 + flock.seat().index();
            flock.broadcast_weights(Odd::new(outputs)).map(|_| ())
        },
    );
    let faults: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(faults.iter().any(|fault| fault.to_string().contains("same network")), "{faults:?}");
}

#[test]
fn matrices_may_be_compressed_and_all_members_get_the_same_bits() {
    let compress = |mut options: FlockOptions| {
        options.carriage = codec("top-k", "ratio = 0.1").unwrap();
        options.for_network(&Odd::new(3))
    };
    let results = fly(2, compress, |mut flock| {
        let model = flock.broadcast_weights(Odd::new(3))?;
        let rows = rows_of(&flock);
        let exact = model.gradients(&ROWS);
        let mean = flock.mean_gradients(model.gradients(rows), &model, rows.len())?;
        flock.leave()?;
        let weight = mean.get::<2>(model.used.weight.id).unwrap();
        let bias = |of: &GradientsParams| {
            let bias = of.get::<1>(model.used.bias.as_ref().unwrap().id).unwrap();
            bias.try_into_vec_as::<f32>().unwrap()
        };
        Ok((weight.try_into_vec_as::<f32>().unwrap(), bias(&mean), bias(&exact)))
    });
    let results: Vec<_> = results.into_iter().map(|result| result.unwrap()).collect();
    assert_eq!(results[0].0, results[1].0);
    for (weight, bias, exact) in &results {
        // Each member sends one of the six numbers of the matrix, and the bias as it is.
        let sent = weight.iter().filter(|value| **value != 0.0).count();
        assert!((1..=2).contains(&sent), "{weight:?}");
        assert_near(bias, exact, 1e-5);
    }
}
