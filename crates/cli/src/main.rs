//! The binary `starlings`: reads the command line, runs one command, and says by its exit code who must act.

mod commands;
mod data_arguments;
mod output;
mod screen;
mod signals;

use clap::Parser;
use commands::Command;
use mimalloc::MiMalloc;
use starlings::{Blame, Fault, NearbyAllocator};
use std::process::ExitCode;

/// Keeps pages that were freed: networks allocate and free the same megabytes in every step, and asking the system for
/// them anew costs a tenth of their time. What will be summed lies where other workers of the host can read it.
#[global_allocator]
static ALLOCATOR: NearbyAllocator<MiMalloc> = NearbyAllocator(MiMalloc);

/// Trains machine-learning models on many machines at once.
#[derive(Parser)]
#[command(name = "starlings", version, arg_required_else_help = true, after_long_help = EXAMPLES)]
#[command(
    long_about = "Trains machine-learning models on many machines at once: algorithm × parallelism × \
    topology × consistency × compression, each a word in a job file, on machines that fail."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
A first job (save as job.toml):
  [data]
  train = \"digits\"
  test  = \"digits:test\"
  label = \"class\"
  [learner]
  name = \"logistic-regression\"

Then:
  starlings train job.toml --workers 4
  starlings predict job.safetensors --data digits:test
  starlings list learners

Exit codes: 0 done; 2 the caller must act; 3 the flock failed; 4 this machine failed; 130 interrupted.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The one place where the environment's keys of stores are read.
    #[cfg(feature = "remote")]
    starlings::remote::configure(std::env::vars().filter(|(name, _)| name.starts_with("AWS_")));
    let silent = arguments.command.leaves_silently();
    let outcome = signals::files_may_be_refused()
        .and_then(|()| output::start_logging())
        .and_then(|()| commands::run(arguments.command));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            if !(silent && fault.blame() == Blame::Interrupted) {
                // Who was asked to stop or to leave, and did, made no error.
                let word = if fault.blame() == Blame::Interrupted { "" } else { "error: " };
                output::complain(&format!("{word}{fault}"));
            }
            // The other ranks would wait for this one.
            #[cfg(feature = "mpi")]
            starlings::mpi::abort(code(&fault));
            ExitCode::from(code(&fault))
        }
    }
}

/// Who must act, as an exit code.
fn code(fault: &Fault) -> u8 {
    match fault.blame() {
        Blame::Caller => 2,
        Blame::Peer(_) => 3,
        Blame::Machine => 4,
        Blame::Interrupted => 130,
    }
}
