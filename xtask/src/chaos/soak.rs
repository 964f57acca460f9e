//! Churn for an hour: members of one long job are killed, frozen, asked to leave, and joined by others, every second or so
//! (`cargo xtask soak`). What the job computes is compared with an undisturbed run step by step as far as that one goes; the
//! worker that was there from the beginning and the coordinator must have no more memory, descriptors and threads at the
//! end than when it began.

use super::chance::Chance;
use super::herd::Process;
use super::play::Tools;
use crate::bench::machine;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Members at the beginning, and again when resources are counted.
const MEMBERS: usize = 3;
const MEMBERS_MAX: usize = 6;
/// Iterations that the undisturbed run computes, too.
const COMPARED: u64 = 2_000;
/// Growth of memory that is forgiven, in MiB.
const MEMORY_MAX: f64 = 16.0;

const JOB: &str = "[data]\ntrain = 'synthetic://blobs?rows=6000&features=8&centers=40&seed=1'\n\
    [learner]\nname = 'gaussian-mixture'\ncomponents = 12\ntolerance = 0.0\n\
    [train]\nseed = 3\nshards = 12\n[cluster]\nfold = 'reproducible'\nticket = 'starlings.ticket'\n";

/// Runs the soak and gives its record.
pub(super) fn run(tools: &Tools, seed: u64, minutes: f64) -> Result<Value, String> {
    let folder = tools.folder.join("soak");
    std::fs::create_dir_all(&folder).map_err(|why| why.to_string())?;
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).map_err(|why| format!("{name}: {why}"))
    };
    write(
        "job.toml",
        format!("{JOB}launcher = 'flock'\nworkers = {{ min = 1, max = {MEMBERS_MAX} }}\n"),
    )?;
    let calm = objectives(&undisturbed(tools, &folder)?);
    let mut herd = Herd::start(tools, &folder)?;
    herd.settle(MEMBERS)?;
    std::thread::sleep(Duration::from_secs(3));
    let before = herd.resources();
    let start = Instant::now();
    let mut chance = Chance::new(seed);
    while start.elapsed().as_secs_f64() < minutes * 60.0 {
        herd.disturb(&mut chance)?;
        std::thread::sleep(Duration::from_millis(chance.within(500, 2_000)));
        if herd.train.ended().is_some() {
            return Err(format!("the job ended: {}", herd.train.last_words()));
        }
    }
    herd.settle(MEMBERS)?;
    std::thread::sleep(Duration::from_secs(3));
    let after = herd.resources();
    let events = herd.end()?;
    let (found, compared) = (objectives(&events), compare(&calm, &objectives(&events))?);
    let counts = json!(herd.counts);
    println!("{counts}: {} iterations, {compared} compared with an undisturbed run", found.len());
    for (name, [memory, descriptors, threads]) in &after {
        let [memory_0, descriptors_0, threads_0] = before[name];
        println!(
            "{name}: memory {memory_0:.1} → {memory:.1} MiB, descriptors {descriptors_0} → {descriptors}, \
             threads {threads_0} → {threads}"
        );
        let grown =
            memory - memory_0 > MEMORY_MAX || *descriptors > descriptors_0 || *threads > threads_0;
        if grown {
            return Err(format!("{name} has more than it began with"));
        }
    }
    Ok(json!({
        "machine": machine::describe(None).json(), "minutes": minutes, "seed": seed, "deeds": counts,
        "iterations": found.len(), "compared": compared, "before": before, "after": after,
    }))
}

/// The same job alone, not for as long.
fn undisturbed(tools: &Tools, folder: &Path) -> Result<Vec<Value>, String> {
    let mut train = Command::new(&tools.starlings);
    train.args(["train", "job.toml", "--json", "--launcher", "threads", "--workers", "2", "--set"]);
    train.arg(format!("learner.max_iterations={COMPARED}")).current_dir(folder);
    let mut train = Process::start("undisturbed", &mut train)?;
    match train.wait(Instant::now() + Duration::from_secs(900)) {
        Some(status) if status.success() => Ok(parse(&train)),
        _ => Err(train.last_words()),
    }
}

fn parse(train: &Process) -> Vec<Value> {
    train.lines(0).iter().filter_map(|(_, line)| serde_json::from_str(line).ok()).collect()
}

/// The objective after each iteration.
fn objectives(events: &[Value]) -> BTreeMap<u64, f64> {
    let passes = events.iter().filter(|event| event["event"] == "epoch");
    passes
        .filter_map(|event| Some((event["epoch"].as_u64()?, event["objective"].as_f64()?)))
        .collect()
}

/// Both runs have the same bits after each iteration that both tell of, and no iteration makes it worse. Gives how many.
fn compare(calm: &BTreeMap<u64, f64>, found: &BTreeMap<u64, f64>) -> Result<usize, String> {
    let mut compared = 0;
    for (iteration, objective) in found {
        if let Some(calm) = calm.get(iteration) {
            compared += 1;
            if calm.to_bits() != objective.to_bits() {
                return Err(format!("after iteration {iteration}: {objective} and not {calm}"));
            }
        }
    }
    let worse = found.iter().zip(found.iter().skip(1)).find(|(one, next)| {
        // Expectation and maximisation never lose ground but for rounding.
        next.1 - one.1 > 1e-9 * one.1.abs()
    });
    match worse {
        Some((one, next)) => Err(format!("{one:?} is followed by {next:?}: a sum was wrong")),
        None => Ok(compared),
    }
}

struct Herd<'a> {
    tools: &'a Tools,
    folder: &'a Path,
    address: String,
    coordinator: Process,
    train: Process,
    /// The first is never disturbed.
    workers: Vec<Process>,
    started: usize,
    counts: BTreeMap<&'static str, u64>,
}

impl<'a> Herd<'a> {
    fn start(tools: &'a Tools, folder: &'a Path) -> Result<Herd<'a>, String> {
        let by = Instant::now() + Duration::from_secs(60);
        let command = |words: &[&str]| {
            let mut command = Command::new(&tools.starlings);
            command.args(words).current_dir(folder);
            command
        };
        let mut coordinator = Process::start(
            "coordinator",
            &mut command(&["coordinator", "--listen", "127.0.0.1:0"]),
        )?;
        let line = coordinator.line("listening on ", by)?;
        let address =
            line["listening on ".len()..].split(';').next().unwrap_or_default().to_string();
        let at = format!("cluster.coordinator={address}");
        let words = ["train", "job.toml", "--json", "--set", &at, "--set"];
        let mut train = command(&words);
        let train = Process::start("train", train.arg("learner.max_iterations=1000000"))?;
        let (workers, counts) = (Vec::new(), BTreeMap::new());
        let mut herd =
            Herd { tools, folder, address, coordinator, train, workers, started: 0, counts };
        herd.join()?;
        herd.train.line("{\"event\":\"step\"", by)?;
        Ok(herd)
    }

    fn join(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.tools.starlings);
        let host = format!("host-{}", self.started);
        command.args(["worker", "--join", &self.address, "--host", &host]);
        let name = format!("worker {}", self.started);
        self.workers.push(Process::start(&name, command.current_dir(self.folder))?);
        self.started += 1;
        Ok(())
    }

    /// One thing happens to one member.
    fn disturb(&mut self, chance: &mut Chance) -> Result<(), String> {
        self.workers.retain_mut(|worker| worker.ended().is_none());
        let many = self.workers.len();
        let deed = match chance.within(0, 9) {
            _ if many < 2 => "join",
            0..=2 if many >= MEMBERS_MAX => "kill",
            0..=4 if many < MEMBERS_MAX => "join",
            5 | 6 => "leave",
            7 => "freeze",
            _ => "kill",
        };
        *self.counts.entry(deed).or_default() += 1;
        if deed == "join" {
            return self.join();
        }
        let victim = &self.workers[chance.within(1, many as u64 - 1) as usize];
        match deed {
            "kill" => victim.signal("KILL"),
            "leave" => victim.signal("TERM"),
            _ => {
                victim.signal("STOP");
                std::thread::sleep(Duration::from_millis(chance.within(100, 2_500)));
                victim.signal("CONT");
            }
        }
        Ok(())
    }

    /// Brings the flock to so many members, and waits until they work together.
    fn settle(&mut self, members: usize) -> Result<(), String> {
        let by = Instant::now() + Duration::from_secs(90);
        loop {
            self.workers.retain_mut(|worker| worker.ended().is_none());
            if self.workers.len() < members {
                self.join()?;
            } else if self.workers.len() > members {
                self.workers[members].signal("KILL");
            }
            std::thread::sleep(Duration::from_millis(1_500));
            let running = self.running()?;
            if running == members && self.workers.len() == members {
                return Ok(());
            }
            if Instant::now() > by {
                return Err(format!("{running} members work and not {members}"));
            }
        }
    }

    /// How many the coordinator says are running.
    fn running(&self) -> Result<usize, String> {
        let mut status = Command::new(&self.tools.starlings);
        status.args(["status", "--at", &self.address, "--json"]).current_dir(self.folder);
        let output = status.output().map_err(|why| why.to_string())?;
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let members = status["members"].as_array().into_iter().flatten();
        Ok(members.filter(|member| member["standing"] == "running").count())
    }

    /// Memory in MiB, descriptors and threads.
    fn resources(&self) -> BTreeMap<String, [f64; 3]> {
        let of = |process: &Process| {
            let id = process.id();
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let number = |key: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(key));
                line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
                    .unwrap_or(0.0)
            };
            let descriptors =
                std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count) as f64;
            (process.name.clone(), [number("VmRSS:") / 1024.0, descriptors, number("Threads:")])
        };
        [of(&self.workers[0]), of(&self.coordinator)].into_iter().collect()
    }

    /// Asks the job to stop, and gives what was told of it.
    fn end(&mut self) -> Result<Vec<Value>, String> {
        self.train.signal("TERM");
        let by = Instant::now() + Duration::from_secs(60);
        let status = self.train.wait(by);
        let polite = status.and_then(|status| status.code()) == Some(130);
        for worker in &mut self.workers {
            worker.wait(by);
        }
        self.coordinator.wait(by);
        if polite { Ok(parse(&self.train)) } else { Err(self.train.last_words()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bits_and_lost_ground_are_seen() {
        let run =
            |values: &[f64]| (0..).zip(values.iter().copied()).collect::<BTreeMap<u64, f64>>();
        assert_eq!(compare(&run(&[3.0, 2.0]), &run(&[3.0, 2.0, 1.0])), Ok(2));
        assert!(compare(&run(&[3.0, 2.0]), &run(&[3.0, 2.0000001])).is_err());
        assert!(compare(&run(&[]), &run(&[3.0, 3.1])).unwrap_err().contains("wrong"));
    }
}
