//! Plays a training run: a coordinator, workers and the one who submits, all real processes; what the scenario says is done
//! to them, and what they said and how they ended is written down.

use super::herd::{Process, signal};
use super::jobs::Job;
use super::points::At;
use super::scenario::{Action, Deed, Scenario};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Whoever submitted hears something within this, or the run hangs: slow is not stuck.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Within this everyone else has gone after the job's end.
const GOING_MAX: Duration = Duration::from_secs(20);
/// Whoever stood still may look for another coordinator for a minute before it gives up.
const LOOKING_MAX: Duration = Duration::from_secs(75);
const PAUSE: Duration = Duration::from_millis(2);
/// Seconds for which whoever joins a running job calls its coordinator.
const NEWCOMER_PATIENCE: &str = "10";

/// What runs need.
pub(super) struct Tools {
    pub(super) starlings: PathBuf,
    pub(super) named_sums: Option<PathBuf>,
    /// What is theirs alone: it goes with them, binaries and all.
    pub(super) folder: PathBuf,
}

impl Drop for Tools {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A worker of a run, by the place in which it was started.
pub(super) struct Worker {
    /// Not there where workers are children of another.
    pub(super) process: Option<Process>,
    pub(super) id: u32,
    pub(super) newcomer: bool,
    /// When it was found standing still, and for how long it is to.
    frozen: Option<(Instant, u64)>,
    pub(super) was_frozen: bool,
}

/// What became of a run.
pub(super) struct Played {
    pub(super) scenario: Scenario,
    pub(super) train: Process,
    /// `None` where it hangs.
    pub(super) status: Option<ExitStatus>,
    pub(super) workers: Vec<Worker>,
    pub(super) coordinators: Vec<Process>,
    /// Whether the failpoint was reached, as far as can be seen.
    pub(super) reached: bool,
    /// Times of committed steps.
    pub(super) steps: Vec<(Instant, u64)>,
    pub(super) events: Vec<Value>,
}

impl Played {
    /// What changed on the way, for people.
    pub(super) fn history(&self) -> String {
        let first = self.steps.first().map(|(at, _)| *at);
        let mut text = String::new();
        let mut step = 0;
        for event in &self.events {
            match event["event"].as_str() {
                Some("step") => step = event["step"].as_u64().unwrap_or(0),
                Some("epoch" | "checkpoint" | "report") => {}
                _ => text += &format!("  step {step}: {event}\n"),
            }
        }
        for pair in self.steps.windows(2).filter(|pair| pair[1].1 <= pair[0].1) {
            let ms = first.map_or(0, |first| (pair[1].0 - first).as_millis());
            text += &format!("  step {} follows step {} at {ms} ms\n", pair[1].1, pair[0].1);
        }
        text
    }
}

/// Plays a run to its end.
pub(super) fn play(tools: &Tools, scenario: &Scenario) -> Result<Played, String> {
    let folder = tools.folder.join(format!("run-{}", scenario.seed));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut run = Run::begin(tools, scenario, &folder)?;
    let (mut heard, mut since) = (0, Instant::now());
    while run.train.ended().is_none() && since.elapsed() < SILENCE_MAX {
        run.listen();
        if run.heard > heard {
            (heard, since) = (run.heard, Instant::now());
        }
        run.act()?;
        run.tend_coordinators()?;
        run.tend_workers()?;
        std::thread::sleep(PAUSE);
    }
    let played = run.end();
    let _ = std::fs::remove_dir_all(&folder);
    Ok(played)
}

/// A job's file for a number of workers.
pub(super) fn job_text(scenario: &Scenario, launcher: &str) -> String {
    let Scenario { job, workers, topology, .. } = scenario;
    let joins = scenario.joins() && scenario.armed.is_some();
    let crew = match joins {
        true => format!("{{ min = {workers}, max = {} }}", workers + 1),
        false => workers.to_string(),
    };
    let topology = match job {
        Job::Local => String::new(),
        _ => format!("topology = '{topology}'\n"),
    };
    let checkpoint = match job {
        Job::Topics => "[checkpoint]\npath = 'kept'\nevery = 10\n",
        _ => "",
    };
    let (text, cluster) = (job.text(), job.cluster());
    format!(
        "{text}[cluster]\nlauncher = '{launcher}'\nworkers = {crew}\nticket = 'starlings.ticket'\n\
         {topology}{cluster}{checkpoint}"
    )
}

struct Run<'a> {
    tools: &'a Tools,
    scenario: &'a Scenario,
    folder: &'a Path,
    address: String,
    train: Process,
    workers: Vec<Worker>,
    coordinators: Vec<Process>,
    /// When the last of them was found to have ended.
    orphaned: Option<Instant>,
    thaw: Option<Instant>,
    heard: usize,
    events: Vec<Value>,
    steps: Vec<(Instant, u64)>,
    done: Vec<bool>,
    reached: bool,
    replaced: bool,
}

impl<'a> Run<'a> {
    fn begin(
        tools: &'a Tools,
        scenario: &'a Scenario,
        folder: &'a Path,
    ) -> Result<Run<'a>, String> {
        let launcher = if scenario.children { "processes" } else { "flock" };
        std::fs::write(folder.join("job.toml"), job_text(scenario, launcher))
            .map_err(|why| why.to_string())?;
        let (mut coordinators, mut address) = (Vec::new(), String::new());
        let by = Instant::now() + Duration::from_secs(30);
        if !scenario.children {
            let fails = fails_at(scenario, At::Coordinator);
            let mut coordinator = Process::start(
                "coordinator",
                &mut coordinate(tools, folder, "127.0.0.1:0", fails),
            )?;
            address = heard_address(&mut coordinator, by)?;
            coordinators.push(coordinator);
        }
        let mut train = command(tools, folder);
        train.args(["train", "job.toml", "--json", "--set"]);
        train.arg(format!("cluster.coordinator={address}"));
        let train = Process::start("train", &mut train)?;
        let mut run = Run {
            tools,
            scenario,
            folder,
            address,
            train,
            workers: Vec::new(),
            coordinators,
            orphaned: None,
            thaw: None,
            heard: 0,
            events: Vec::new(),
            steps: Vec::new(),
            done: vec![false; scenario.deeds.len()],
            reached: false,
            replaced: false,
        };
        for worker in 0..if scenario.children { 0 } else { scenario.workers } {
            run.start_worker(worker, false)?;
            if worker == 0
                && scenario.armed.is_some_and(|it| matches!(it.point.at, At::First | At::Later))
            {
                // Ranks go by who came first: a busy machine may take long to start a process.
                run.train.line("{\"event\":\"waiting\",\"have\":1,", by)?;
            }
        }
        Ok(run)
    }

    fn start_worker(&mut self, index: usize, newcomer: bool) -> Result<(), String> {
        let mut worker = command(self.tools, self.folder);
        worker.args(["worker", "--join", &self.address]);
        if newcomer {
            // It comes to a job that runs: where nobody answers the job is over, and it need not wait for one to begin.
            worker.args(["--patience", NEWCOMER_PATIENCE]);
        }
        if !self.scenario.one_host {
            worker.args(["--host", &format!("host-{index}")]);
        }
        if let Some(armed) = &self.scenario.armed {
            let mine = match armed.point.at {
                At::Newcomer => newcomer,
                At::Worker | At::First | At::Later => !newcomer && armed.victim == index,
                At::Coordinator | At::Heir | At::Member => false,
            };
            if mine && !self.replaced {
                worker.env("STARLINGS_FAIL", armed.word());
            }
        }
        let process = Process::start(&format!("worker {index}"), &mut worker)?;
        let id = process.id();
        let process = Some(process);
        self.workers.push(Worker { process, id, newcomer, frozen: None, was_frozen: false });
        Ok(())
    }

    /// Takes down what the one who submitted was told.
    fn listen(&mut self) {
        for (at, line) in self.train.lines(self.heard) {
            self.heard += 1;
            let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
            if event["event"] == "step" {
                self.steps.push((at, event["step"].as_u64().unwrap_or(0)));
            }
            if event["event"] == "worker" && self.scenario.children {
                let id = event["pid"].as_u64().unwrap_or(0) as u32;
                self.workers.push(Worker {
                    process: None,
                    id,
                    newcomer: false,
                    frozen: None,
                    was_frozen: false,
                });
            }
            self.events.push(event);
        }
    }

    /// Does what is due.
    fn act(&mut self) -> Result<(), String> {
        for at in 0..self.done.len() {
            let (moment, deed) = self.scenario.deeds[at];
            let since = self.steps.get(moment.steps - 1).map(|(since, _)| since.elapsed());
            let due = since.is_some_and(|since| since >= Duration::from_millis(moment.ms));
            if self.done[at] || !due {
                continue;
            }
            self.done[at] = true;
            match deed {
                Deed::Kill(worker) => self.kill(worker),
                Deed::Freeze(worker, ms) => {
                    if let Some(worker) = self.workers.get_mut(worker) {
                        signal(worker.id, "STOP");
                        (worker.frozen, worker.was_frozen) = (Some((Instant::now(), ms)), true);
                    }
                }
                Deed::Join => self.start_worker(self.workers.len(), true)?,
                Deed::KillCoordinator => {
                    if let Some(coordinator) = self.coordinators.last() {
                        coordinator.signal("KILL");
                    }
                }
                Deed::FreezeCoordinator(ms) => {
                    if let Some(coordinator) = self.coordinators.last() {
                        coordinator.signal("STOP");
                        self.thaw = Some(Instant::now() + Duration::from_millis(ms));
                    }
                }
            }
        }
        if self.thaw.is_some_and(|at| Instant::now() >= at) {
            self.thaw = None;
            self.coordinators.iter().for_each(|coordinator| coordinator.signal("CONT"));
        }
        Ok(())
    }

    fn kill(&self, worker: usize) {
        // Only what is known to be ours is signalled.
        if let Some(worker) = self.workers.get(worker).filter(|worker| worker.id > 1) {
            signal(worker.id, "KILL");
        }
    }

    /// A coordinator that was killed is followed by another.
    fn tend_coordinators(&mut self) -> Result<(), String> {
        let Some(last) = self.coordinators.last_mut() else { return Ok(()) };
        if !last.was_killed() {
            return Ok(());
        }
        let since = *self.orphaned.get_or_insert_with(Instant::now);
        let (after, same) = self.scenario.heir;
        if since.elapsed() < Duration::from_millis(after) {
            return Ok(());
        }
        self.orphaned = None;
        let count = self.coordinators.len();
        let fails = if count == 1 { fails_at(self.scenario, At::Heir) } else { None };
        self.reached |= count > 1 || fails_at(self.scenario, At::Coordinator).is_some();
        let place = if same { self.address.clone() } else { "127.0.0.1:0".to_string() };
        let mut heir = coordinate(self.tools, self.folder, &place, fails);
        let heir = Process::start(&format!("coordinator {count}"), heir.arg("--resume"))?;
        self.coordinators.push(heir);
        Ok(())
    }

    /// Thaws who stood still, and replaces who died before it had a seat.
    fn tend_workers(&mut self) -> Result<(), String> {
        let Some(armed) = self.scenario.armed else { return self.thaw_workers() };
        for worker in &mut self.workers {
            let Some(process) = &mut worker.process else { continue };
            let set = match armed.point.at {
                At::Newcomer => worker.newcomer,
                _ => process.name == format!("worker {}", armed.victim),
            };
            if !set {
                continue;
            }
            if armed.action == Action::Kill && process.was_killed() {
                self.reached = true;
            }
            if armed.action == Action::Stop && !worker.was_frozen && process.is_stopped() {
                self.reached = true;
                worker.was_frozen = true;
                worker.frozen = Some((Instant::now(), self.scenario.thaw_ms));
            }
        }
        let early = matches!(armed.point.name, "join-welcomed" | "join-ready")
            && armed.point.at == At::Worker
            && armed.action == Action::Kill;
        if early && self.reached && !self.replaced {
            self.replaced = true;
            self.start_worker(self.workers.len(), false)?;
        }
        self.thaw_workers()
    }

    fn thaw_workers(&mut self) -> Result<(), String> {
        for worker in &mut self.workers {
            if worker.frozen.is_some_and(|(at, ms)| at.elapsed() >= Duration::from_millis(ms)) {
                worker.frozen = None;
                signal(worker.id, "CONT");
            }
        }
        Ok(())
    }

    fn end(mut self) -> Played {
        let status = self.train.wait(Instant::now());
        self.coordinators.iter().for_each(|coordinator| coordinator.signal("CONT"));
        for worker in self.workers.iter().filter(|worker| worker.frozen.is_some()) {
            signal(worker.id, "CONT");
        }
        let by = Instant::now() + GOING_MAX;
        for worker in &mut self.workers {
            let by = if worker.was_frozen { Instant::now() + LOOKING_MAX } else { by };
            if let Some(process) = &mut worker.process {
                process.wait(by);
            }
        }
        for coordinator in &mut self.coordinators {
            coordinator.wait(by);
        }
        self.listen();
        let Run { train, workers, coordinators, reached, steps, events, .. } = self;
        let scenario = self.scenario.clone();
        Played { scenario, train, status, workers, coordinators, reached, steps, events }
    }
}

fn command(tools: &Tools, folder: &Path) -> Command {
    let mut command = Command::new(&tools.starlings);
    command.current_dir(folder).env_remove("STARLINGS_FAIL");
    command
}

fn coordinate(tools: &Tools, folder: &Path, place: &str, fails: Option<String>) -> Command {
    let mut coordinator = command(tools, folder);
    coordinator.args(["coordinator", "--listen", place]);
    coordinator.envs(fails.map(|word| ("STARLINGS_FAIL", word)));
    coordinator
}

fn fails_at(scenario: &Scenario, at: At) -> Option<String> {
    scenario.armed.filter(|armed| armed.point.at == at).map(|armed| armed.word())
}

fn heard_address(coordinator: &mut Process, by: Instant) -> Result<String, String> {
    let line = coordinator.line("listening on ", by)?;
    Ok(line["listening on ".len()..].split(';').next().unwrap_or_default().to_string())
}
