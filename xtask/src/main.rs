//! The project's chores as one small program, `cargo xtask CHORE`, so that a newcomer, the pipeline and
//! the maintainers run the same checks. Start reading at `chores.rs`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a chore talks to the person who runs it, times its stages and reads the environment"
)]

mod bench;
mod chaos;
mod chores;
mod simulation;
mod stage;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask CHORE

  verify   read-only checks, cheapest first; stops at the first failure
  fix      formats and applies clippy's suggestions: the only chore that writes sources
  tidy     the project's own rules: headers, sizes, names, arrows, catalogues, links
  backends type-checks networks for each backend of Burn (cuda, rocm, metal, wgpu); no GPU or SDK is needed, some minutes are
           NAME …           only these
  test     everything, on a machine with nothing but a Rust toolchain and a C compiler
  simulate the protocol under faults, many seeds on all cores; a failure names its replay
           --seeds N        how many (100000)
           --from S         the first (0)
           --machine NAME   surviving, merging, collecting, serving or membership (all of them)
           --record         writes the count and the commit to bench/simulated.json
  planted  plants each of the known bugs in turn: the simulator must find them all
           --only TEXT      only those whose name contains TEXT
  chaos    real processes that die and stand still at named places and at random moments; a failure names its replay
           --runs N         how many (1000), two at a time
           --seed S         the first (0)
           --only TEXT      only those whose description contains TEXT: points, kills, freezes, coordinators, sums, …
           --minutes M      no run begins after that
           --side-by-side N so many runs at a time (2); campaigns of one at a time are told apart
           --binary PATH    uses this binary (built with failpoints) instead of a fresh one
           --record         adds the counts to bench/chaos.json and writes bench/chaos.md
           --links          cuts links between network namespaces instead (needs root and ip), up to 10 runs of each kind
           --torchft        kills one of two and of three beside torchft over gloo instead, up to 15 runs of each (bench/torchft.md)
           --python PATH    the Python that has torchft, if it is not the one of bench --setup
  soak     members of one long job come and go; sums, memory, descriptors and threads are checked
           --minutes M      how long (60)
           --seed S         other mishaps
           --binary PATH    as above
           --record         adds what was found to bench/soak.json
  bench    ours against named peers in the same run; writes bench/runs/DATE-MACHINE
           --setup          makes the peers' Python environment under target/peers, then stops; with --only some of its packages
           --python PATH    uses this Python instead
           --binary PATH    measures this binary of ours instead of a fresh release build
           --only TEXT      only the cases whose name contains TEXT, or one of several: 'TEXT|TEXT'
           --quick          few sizes, few rounds: shows that it runs, proves nothing
  fuzz     hands mutated inputs to every decoder; see fuzz/README.md for fuzzing by coverage
           NAME …           only these decoders
           --executions N   so many each (1,000,000)
           --seed N         other mutations
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = project_root();
    let chore = arguments.first().map(String::as_str);
    let done = match chore {
        Some("verify") => chores::verify(&root),
        Some("fix") => chores::fix(&root),
        Some("tidy") => chores::tidy_alone(&root),
        Some("backends") => chores::backends(&root, &arguments[1..]),
        Some("test") => chores::test(&root),
        Some("simulate") => simulation::run(&root, &arguments[1..]),
        Some("planted") => simulation::planted(&root, &arguments[1..]),
        Some("chaos") => chaos::run(&root, &arguments[1..]),
        Some("soak") => chaos::soak(&root, &arguments[1..]),
        Some("bench") => bench::run(&root, &arguments[1..]),
        Some("fuzz") => chores::fuzz(&root, &arguments[1..]),
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => Err(format!("unknown chore '{other}'\n\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root: the folder above this package.
fn project_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("xtask lies inside the workspace").to_path_buf()
}
