//! The peers' environment: a Python of their own under `target/peers`, so that nothing of the user's is touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGES: &[&str] =
    &["numpy", "scipy", "scikit-learn", "pyarrow", "pyspark", "torch", "torchft", "mpi4py"];

/// Makes the environment with the packages that are wanted. What cannot be had is said; the suite then skips it.
pub(super) fn set_up(root: &Path, wants: impl Fn(&str) -> bool) -> Result<(), String> {
    let folder = root.join("target/peers");
    let done = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    if wants("mpi4py") && !is_there("mpirun") {
        let install = ["install", "-y", "openmpi-bin", "libopenmpi-dev"];
        if !done(Command::new("apt-get").args(install)) {
            println!(
                "skipped: Open MPI (install openmpi-bin and libopenmpi-dev with your system's package manager)"
            );
        }
    }
    if wants("pyspark") && !is_there("java") {
        println!("skipped: Spark needs a Java runtime (for example openjdk-17-jre-headless)");
    }
    if !done(Command::new("python3").args(["-m", "venv"]).arg(&folder)) {
        return Err("python3 -m venv failed: install python3 with its venv module".to_string());
    }
    let python = folder.join("bin/python");
    for package in PACKAGES.iter().filter(|package| wants(package)) {
        println!("installing {package}");
        if !done(Command::new(&python).args(["-m", "pip", "install", "--quiet", package])) {
            println!("skipped: {package} could not be installed");
        }
    }
    Ok(())
}

/// The Python that the person named, or ours under `target/peers`.
pub(crate) fn python(root: &Path, named: Option<PathBuf>) -> Option<PathBuf> {
    let own = root.join("target/peers/bin/python");
    named.or_else(|| own.exists().then_some(own))
}

/// Whether a program can be started.
pub(super) fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
