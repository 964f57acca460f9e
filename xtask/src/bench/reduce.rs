//! All-reduce between processes of this machine, over TCP and through shared memory: the sum that data-parallel
//! training waits for. Peers: torch's gloo, which blocks, and Open MPI, which polls, over TCP and over shared memory; and of two
//! workers (through shared memory of four, too) the bound, as the ratio of which a row gives the share that is reached: what loopback lets through both ways at
//! once, and a copy of as many bytes by as many processes.
//! And what the reproducible fold costs beside a plain sum of the same numbers, TLS beside plain links, and sums that
//! survive a loss beside those that do not.

use super::row::Outcome;
use super::turns::{self, Contender};
use super::{Suite, peers};
use std::ffi::OsString;

struct Size {
    name: &'static str,
    bytes: u64,
    /// Rounds of all contenders; each measures many sums within a round.
    rounds: usize,
    /// Sums within a round, for the peers.
    repeats: u32,
    is_quick: bool,
}

const SIZES: &[Size] = &[
    Size { name: "4 KB", bytes: 4 << 10, rounds: 5, repeats: 1000, is_quick: true },
    Size { name: "256 KB", bytes: 256 << 10, rounds: 5, repeats: 200, is_quick: false },
    Size { name: "4 MB", bytes: 4 << 20, rounds: 5, repeats: 30, is_quick: true },
    Size { name: "64 MB", bytes: 64 << 20, rounds: 5, repeats: 5, is_quick: false },
    Size { name: "256 MB", bytes: 256 << 20, rounds: 5, repeats: 3, is_quick: false },
];

pub(super) fn run(suite: &Suite<'_>, outcome: &mut Outcome) {
    for workers in [2, 4] {
        for size in SIZES.iter().filter(|size| size.is_quick || !suite.is_quick) {
            for (transport, like) in [("tcp", "tcp"), ("shared", "shared memory")] {
                let case = format!("all-reduce, {transport}, {workers} processes, {}", size.name);
                let way = format!("--transport {transport}");
                let mut contenders = vec![ours(suite, workers, size, &way)];
                if transport == "shared" {
                    let mut copied = ours(suite, workers, size, &format!("{way} --copied"));
                    copied.name = "starlings, copied into shared memory".to_string();
                    contenders.push(copied);
                }
                let own = contenders.len();
                contenders.extend(rivals(suite, workers, size, like));
                contenders.extend(bounds(suite, workers, size, transport));
                compare(suite, outcome, (&case, own), size, &contenders);
            }
        }
    }
    for size in SIZES.iter().filter(|size| size.is_quick || !suite.is_quick) {
        let case = format!("reproducible fold against plain f64, 2 processes, {}", size.name);
        let way = |numbers: &str| format!("--transport tcp --numbers {numbers}");
        let mut plain = ours(suite, 2, size, &way("f64"));
        plain.name = "plain sum of f64".to_string();
        let contenders = [ours(suite, 2, size, &way("reproducible")), plain];
        compare(suite, outcome, (&case, 1), size, &contenders);
    }
    for size in SIZES.iter().filter(|size| size.is_quick || !suite.is_quick) {
        let case = format!("all-reduce inside TLS against plain, 2 processes, {}", size.name);
        let mut plain = ours(suite, 2, size, "--transport tcp");
        plain.name = "without TLS".to_string();
        let contenders = [ours(suite, 2, size, "--transport tcp --tls"), plain];
        compare(suite, outcome, (&case, 1), size, &contenders);
    }
    for size in SIZES.iter().filter(|size| size.is_quick || !suite.is_quick) {
        for transport in ["tcp", "shared"] {
            // They are to differ by less than the machine's noise in a few rounds; short ones by much less.
            let times = if size.bytes > 4 << 20 { 8 } else { 40 };
            let often = Size { rounds: times * size.rounds + 1, ..*size };
            for (flags, words) in
                [(" --beside", "into other memory"), ("", "made again after a loss")]
            {
                let case = format!(
                    "sums that survive against others, {transport}, 2 processes, {}, {words}",
                    size.name
                );
                let way = format!("--transport {transport}{flags}");
                let mut plain = ours(suite, 2, size, &way);
                plain.name = "lost with a worker".to_string();
                let surviving = ours(suite, 2, size, &format!("{way} --survive"));
                compare(suite, outcome, (&case, 1), &often, &[surviving, plain]);
            }
        }
    }
    if suite.python.is_none() {
        outcome.skip(
            "torch gloo and Open MPI: no Python for the peers (cargo xtask bench --setup)"
                .to_string(),
        );
    } else if !peers::is_there("mpirun") {
        outcome.skip("Open MPI: mpirun is not installed".to_string());
    }
}

/// Measures contenders in turns, of which the first are our own.
fn compare(
    suite: &Suite<'_>,
    outcome: &mut Outcome,
    (case, own): (&str, usize),
    size: &Size,
    contenders: &[Contender],
) {
    if !suite.wants(case) {
        return;
    }
    eprintln!("{case}");
    let rounds = if suite.is_quick { 2 } else { size.rounds };
    let measured = turns::take(contenders, rounds);
    outcome.enter(case, &measured[..own], &measured[own..]);
}

fn ours(suite: &Suite<'_>, workers: u32, size: &Size, way: &str) -> Contender {
    let line = format!(
        "bench all-reduce --workers {workers} --bytes {} --launcher processes {way} --json",
        size.bytes
    );
    Contender {
        name: "starlings".to_string(),
        program: suite.binary.clone(),
        arguments: line.split(' ').map(OsString::from).collect(),
        environment: Vec::new(),
        rounds_max: usize::MAX,
    }
}

fn rivals(suite: &Suite<'_>, workers: u32, size: &Size, like: &str) -> Vec<Contender> {
    let Some(python) = &suite.python else { return Vec::new() };
    let figures = [size.bytes.to_string(), size.repeats.to_string()];
    let mut gloo: Vec<OsString> =
        vec![suite.script("allreduce_gloo.py").into(), workers.to_string().into()];
    gloo.extend(figures.iter().map(OsString::from));
    let contender = |name: &str, program, arguments| Contender {
        name: name.to_string(),
        program,
        arguments,
        environment: environment(),
        rounds_max: usize::MAX,
    };
    let mut rivals = vec![contender("torch gloo", python.clone(), gloo)];
    if peers::is_there("mpirun") {
        for (name, ways) in [
            ("Open MPI, tcp", "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"),
            ("Open MPI, shared memory", "--mca pml ob1 --mca btl vader,self"),
        ]
        .into_iter()
        .filter(|(name, _)| name.ends_with(like))
        {
            // More ranks than cores starve each other unless they yield while they poll.
            let line = format!(
                "-n {workers} --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 {ways}"
            );
            let mut arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            arguments.extend([python.clone().into(), suite.script("allreduce_mpi.py").into()]);
            arguments.extend(figures.iter().map(OsString::from));
            rivals.push(contender(name, "mpirun".into(), arguments));
        }
    }
    rivals
}

/// What the machine allows at best.
fn bounds(suite: &Suite<'_>, workers: u32, size: &Size, transport: &str) -> Vec<Contender> {
    // Links of more workers than cores are bound by the cores.
    let is_bound = workers == 2 || transport != "tcp";
    let Some(python) = suite.python.as_ref().filter(|_| is_bound) else { return Vec::new() };
    let figures = format!("{} {}", size.bytes, size.repeats);
    let scripts = match transport {
        "tcp" => [
            ("from and into caches", "caches"),
            ("from and into memory", "memory"),
            ("plainly", "plain"),
            ("from and into memory over two connections", "double"),
        ]
        .map(|(how, word)| {
            let name = format!("bound: loopback, both ways, {how}");
            (name, "duplex_loopback.py", format!("{figures} {word}"))
        })
        .to_vec(),
        _ => vec![(
            "bound: a copy by each".to_string(),
            "copy_bandwidth.py",
            format!("{workers} {figures}"),
        )],
    };
    let contender = |(name, script, line): (String, &str, String)| {
        let mut arguments: Vec<OsString> = vec![suite.script(script).into()];
        arguments.extend(line.split(' ').map(OsString::from));
        let (program, environment) = (python.clone(), environment());
        Contender { name, program, arguments, environment, rounds_max: usize::MAX }
    };
    scripts.into_iter().map(contender).collect()
}

/// One thread for each rank, as ours; Open MPI refuses the superuser of a container unless told twice.
fn environment() -> Vec<(&'static str, String)> {
    ["OMP_NUM_THREADS", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"]
        .map(|key| (key, "1".to_string()))
        .to_vec()
}
