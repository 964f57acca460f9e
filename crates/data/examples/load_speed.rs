//! Measures how fast a numeric CSV loads: writes one into a temporary folder, loads it once, and prints
//! megabytes a second and the peak of resident memory. `cargo run --release --example load_speed -- 1000000 28`

#![expect(clippy::print_stdout, reason = "an example talks to people")]
#![expect(clippy::disallowed_methods, reason = "an example may look at the clock")]

use starlings_core::{Fault, Result, Rng};
use starlings_data::{DataSpec, Encoding, LabelNeed, load_all};
use std::io::{BufWriter, Write};
use std::time::Instant;

fn main() -> Result<()> {
    let mut sizes = std::env::args().skip(1).map(|size| size.parse::<usize>().unwrap_or(1));
    let (rows, features) = (sizes.next().unwrap_or(1_000_000), sizes.next().unwrap_or(28));
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("numbers.csv");
    write(&path, rows, features)?;
    let bytes = std::fs::metadata(&path)?.len() as f64;

    let spec = DataSpec::new(path.to_string_lossy()).label("label");
    let (start, busy) = (Instant::now(), cpu_seconds().unwrap_or(0.0));
    let (survey, holding) = load_all(&spec, Encoding::OneHot, LabelNeed::Class, 64)?;
    let seconds = start.elapsed().as_secs_f64();
    let busy = cpu_seconds().unwrap_or(0.0) - busy;

    let floats = (rows * (features + 1) * 4) as f64;
    let peak = peak_bytes().ok_or_else(|| Fault::machine("no VmHWM in /proc/self/status"))?;
    println!("{} rows x {} features, {:.1} MB", survey.rows, holding.table.width(), bytes / 1e6);
    println!("{seconds:.3} s, {:.0} MB/s", bytes / 1e6 / seconds);
    println!("{busy:.2} s of processors, {:.0} MB/s each", bytes / 1e6 / busy);
    println!(
        "peak {:.1} MB, {:.2} times the table's {:.1} MB",
        peak / 1e6,
        peak / floats,
        floats / 1e6
    );
    Ok(())
}

fn write(path: &std::path::Path, rows: usize, features: usize) -> Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let names: Vec<String> = (0..features).map(|feature| format!("x{feature}")).collect();
    writeln!(file, "label,{}", names.join(","))?;
    let mut rng = Rng::named(1, "load speed", &[]);
    for row in 0..rows {
        write!(file, "{}", row % 2)?;
        for _ in 0..features {
            write!(file, ",{:.6}", 4.0 * rng.uniform() - 2.0)?;
        }
        writeln!(file)?;
    }
    file.flush()?;
    Ok(())
}

/// The largest resident memory so far, in bytes.
fn peak_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}

/// Processor time of all threads so far, which other programs on the machine do not change much. Linux counts
/// it in hundredths of a second.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / 100.0)
}
