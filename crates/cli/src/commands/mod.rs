//! The commands, one file each. Adding one is a new file, a line in the enum and a line in `run`.

mod bench;
mod coordinator;
mod evaluate;
mod inspect;
mod list;
mod portrait;
mod predict;
mod status;
mod train;
mod worker;

use clap::Subcommand;
use starlings::Result;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Train(train::Arguments),
    Predict(predict::Arguments),
    Evaluate(evaluate::Arguments),
    Inspect(inspect::Arguments),
    List(list::Arguments),
    Coordinator(coordinator::Arguments),
    Worker(worker::Arguments),
    Status(status::Arguments),
    Bench(bench::Arguments),
}

impl Command {
    /// Whether an interruption goes without saying: a launcher asked for it and tells its user itself.
    pub(crate) fn leaves_silently(&self) -> bool {
        matches!(self, Command::Worker(arguments) if arguments.quiet())
    }
}

/// Does it.
pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Train(arguments) => train::run(arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Evaluate(arguments) => evaluate::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Coordinator(arguments) => coordinator::run(&arguments),
        Command::Worker(arguments) => worker::run(arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Bench(arguments) => bench::run(arguments),
    }
}
