//! Standard output and standard error. A reader that went away (`starlings list | head`) is no fault; a full
//! disk is.

use starlings::{Fault, Result};
use std::io::{ErrorKind, Write};
use tracing_subscriber::EnvFilter;

/// Writes to standard output.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Fault::machine("cannot write to standard output").caused_by(error))
        }
        _ => Ok(()),
    }
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn say_json(value: &serde_json::Value) -> Result<()> {
    say(&format!("{value}\n"))
}

/// Writes a line to standard error. Where nobody listens, nobody can be told.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Logs go to standard error; STARLINGS_LOG chooses what is told, as in `STARLINGS_LOG=debug`.
pub(crate) fn start_logging() -> Result<()> {
    let filter = EnvFilter::builder()
        .with_default_directive(tracing::Level::WARN.into())
        .with_env_var("STARLINGS_LOG")
        .from_env()
        .map_err(|error| Fault::caller("STARLINGS_LOG is not a filter").caused_by(error))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init()
        .map_err(|error| Fault::machine("cannot start logging").caused_by(error))
}

/// Rows of cells as aligned text: two spaces between columns, none at the end.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, wide)| format!("{cell:wide$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_without_trailing_blanks() {
        let rows =
            [vec!["a".to_string(), "é".to_string(), "c".to_string()], vec!["long".to_string()]];
        assert_eq!(table(&rows), "a     é  c\nlong\n");
    }
}
