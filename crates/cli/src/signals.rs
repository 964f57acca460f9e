//! Signals: a first Ctrl-C or SIGTERM asks politely, a second one ends the process at once. A limit on file
//! sizes becomes an error of the write instead of a sudden death, so that it is reported like a full disk.

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use starlings::{Fault, Result, Stop};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A request to stop that Ctrl-C and SIGTERM make.
pub(crate) fn stop() -> Result<Stop> {
    let asked = Arc::new(AtomicBool::new(false));
    listen(&[SIGINT, SIGTERM], &asked)?;
    Ok(Stop::from_flag(asked))
}

/// The same in a process that a launcher has started. Ctrl-C in a terminal reaches the launcher and all that it has started: it
/// is the launcher that stops the job, or workers would leave one by one before it can. A second one ends all at once.
pub(crate) fn stop_by_launcher() -> Result<Stop> {
    let asked = Arc::new(AtomicBool::new(false));
    listen(&[SIGTERM], &asked)?;
    listen(&[SIGINT], &Arc::new(AtomicBool::new(false)))?;
    Ok(Stop::from_flag(asked))
}

fn listen(signals: &[i32], asked: &Arc<AtomicBool>) -> Result<()> {
    for &signal in signals {
        // In this order: the first signal finds the flag unset and sets it, the second finds it set.
        flag::register_conditional_default(signal, asked.clone()).map_err(refused)?;
        flag::register(signal, asked.clone()).map_err(refused)?;
    }
    Ok(())
}

/// Lets writes beyond the file-size limit fail instead of killing the process.
pub(crate) fn files_may_be_refused() -> Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map_err(refused)?;
    Ok(())
}

fn refused(error: std::io::Error) -> Fault {
    Fault::machine("cannot listen to signals").caused_by(error)
}
