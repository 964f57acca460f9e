//! The chores themselves: which stages they have and in which order. The cheapest comes first, so that a
//! slip is known in seconds.

use crate::stage::Run;
use crate::tidy;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CLIPPY: &[&str] =
    &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
const DOC_TESTS: &[&str] = &["test", "--workspace", "--doc"];

/// Tests of the conformance suites, and tests on the simulator, by name of the test or its binary. The unit stage is
/// everything else, so that no test can fall between the stages.
const CONFORMANCE: &str = "test(/conformance/) | binary(/conformance/)";
const SIMULATION: &str = "test(/simulat/) | binary(/simulat/)";

/// What the feature `mpi` adds, against the real mpirun.
const MPI_CLIPPY: &[&str] = &[
    "clippy",
    "--package",
    "starlings-cli",
    "--package",
    "starlings-transport",
    "--features",
    "mpi",
    "--all-targets",
    "--quiet",
    "--",
    "-D",
    "warnings",
];
const MPI_LINKS: &[&str] =
    &["test", "--package", "starlings-transport", "--features", "mpi", "--lib", "mpi"];
const MPI_RUNS: &[&str] =
    &["test", "--package", "starlings-cli", "--features", "mpi", "--test", "mpi"];

/// Read-only, cheapest first, stops at the first failure.
pub(crate) fn verify(root: &Path) -> Result<(), String> {
    let mut run = Run::new(root);
    let unit = format!("not ({CONFORMANCE} | {SIMULATION})");
    let _ = run.cargo("format", &["fmt", "--all", "--check"], 2)
        && run.check("tidy", tidy::check)
        && run.cargo("clippy", CLIPPY, 20)
        && match has("nextest") {
            true => {
                run.cargo("unit", &nextest(&unit), 30)
                    && run.cargo(
                        "conformance",
                        &nextest(&format!("({CONFORMANCE}) - ({SIMULATION})")),
                        10,
                    )
                    && run.cargo("doc tests", DOC_TESTS, 10)
                    && run.cargo("simulation", &nextest(SIMULATION), 10)
            }
            false => run.cargo("tests", &["test", "--workspace"], 45),
        };
    run.finish()
}

/// The only chore that writes sources.
pub(crate) fn fix(root: &Path) -> Result<(), String> {
    let mut run = Run::new(root);
    let fixing =
        ["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"];
    let _ = run.cargo("clippy --fix", &fixing, 20) && run.cargo("format", &["fmt", "--all"], 2);
    run.check("table of combinations", write_combinations);
    run.finish()
}

/// The page of the book that a test compares with the catalogues.
fn write_combinations(root: &Path) -> Result<(), String> {
    const INTRODUCTION: &str = "# Combinations\n\n\
        Which choices work together, and why the others do not: made by `cargo xtask fix` from what each entry \
        gives and needs,\nand compared with the catalogues by a test. `starlings list combinations` prints it.\n\n";
    let arguments = ["run", "--quiet", "--package", "starlings-cli", "--", "list", "combinations"];
    let made = std::process::Command::new("cargo").args(arguments).current_dir(root).output();
    let made = made.map_err(|error| format!("cargo: {error}"))?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into_owned());
    }
    let page = INTRODUCTION.to_string() + &String::from_utf8_lossy(&made.stdout);
    std::fs::write(root.join("book/combinations.md"), page).map_err(|error| error.to_string())
}

/// Only the project's own rules.
pub(crate) fn tidy_alone(root: &Path) -> Result<(), String> {
    let mut run = Run::new(root);
    run.check("tidy", tidy::check);
    run.finish()
}

/// Everything, and every stage even after a failure, so that one run tells all.
pub(crate) fn test(root: &Path) -> Result<(), String> {
    for component in ["fmt", "clippy"] {
        ensure_component(component);
    }
    let mut run = Run::new(root);
    match has("fmt") {
        true => _ = run.cargo("format", &["fmt", "--all", "--check"], 2),
        false => println!("skipped: format (rustfmt is not installed)"),
    }
    run.check("tidy", tidy::check);
    match has("clippy") {
        true => _ = run.cargo("clippy", CLIPPY, 20),
        false => println!("skipped: clippy (not installed)"),
    }
    if !root.join("../shared/data").is_dir() {
        println!("skipped: comparisons on the larger public data sets (not beside the project)");
    }
    if !answers("strace", "-V") {
        println!(
            "skipped: saves killed at each of their system calls (not found: strace; on Debian install strace)"
        );
    }
    if !answers("moto_server", "--help") {
        println!(
            "skipped: data and checkpoints in a bucket (not found: moto_server; pip install 'moto[s3]' flask flask-cors)"
        );
    }
    if std::env::var_os("HADOOP_JARS").is_none() {
        println!(
            "skipped: data in HDFS (HADOOP_JARS names no folder with its jars; .ci/run fetches them)"
        );
    }
    if has("nextest") {
        run.cargo("tests", &["nextest", "run", "--workspace"], 35);
        run.cargo("doc tests", DOC_TESTS, 10);
    } else {
        println!(
            "skipped: a limit of time for each test (cargo-nextest is not installed); cargo test runs them instead"
        );
        // This includes the doc tests.
        run.cargo("tests", &["test", "--workspace", "--no-fail-fast"], 40);
    }
    match mpi_lacks().as_slice() {
        [] => {
            if has("clippy") {
                run.cargo("mpi clippy", MPI_CLIPPY, 20);
            }
            run.cargo("mpi links", MPI_LINKS, 20);
            run.cargo("mpi runs", MPI_RUNS, 20);
        }
        lacks => println!(
            "skipped: MPI (not found: {}; on Debian install openmpi-bin, libopenmpi-dev and libclang-dev)",
            lacks.join(", ")
        ),
    }
    run.finish()
}

/// The features of `starlings-nn` that are backends of Burn. Their crates take minutes to check, so no other chore does.
const BACKENDS: &[&str] = &["cuda", "rocm", "metal", "wgpu"];
/// What is only checked runs no code but macros and build scripts, and they need not be fast.
const PLAIN: &str = "profile.dev.package.\"*\".opt-level=0";
/// `cuda` and `rocm` compile kernels by an LLVM that a build script fetches from the network; nobody who only checks needs it, and
/// this is the word by which such scripts know.
const UNLINKED: &str = "env.DOCS_RS=\"1\"";

/// Whether networks still fit each backend, or only some.
pub(crate) fn backends(root: &Path, only: &[String]) -> Result<(), String> {
    if let Some(other) = only.iter().find(|name| !BACKENDS.contains(&name.as_str())) {
        return Err(format!("unknown backend '{other}'; there are {}", BACKENDS.join(", ")));
    }
    let mut run = Run::new(root);
    for name in BACKENDS.iter().filter(|name| only.is_empty() || only.iter().any(|it| it == *name))
    {
        let settings = ["check", "--config", PLAIN, "--config", UNLINKED];
        let check = [&settings[..], &["--package", "starlings-nn", "--features", name]].concat();
        run.cargo(name, &check, 60);
    }
    run.finish()
}

/// Mutated inputs through every decoder, on the stable toolchain.
pub(crate) fn fuzz(root: &Path, arguments: &[String]) -> Result<(), String> {
    let program = ["run", "--release", "--package", "starlings-testkit", "--example", "fuzz", "--"];
    let status = Command::new("cargo").args(program).args(arguments).current_dir(root).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("fuzz ended with {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}

/// What the feature `mpi` needs and this machine has not.
fn mpi_lacks() -> Vec<&'static str> {
    let mut lacks: Vec<&str> =
        ["mpirun", "mpicc"].into_iter().filter(|program| !answers(program, "--version")).collect();
    if !has_libclang() {
        lacks.push("libclang");
    }
    lacks
}

/// Whether a program is there.
fn answers(program: &str, question: &str) -> bool {
    let asked = Command::new(program).arg(question).stdin(Stdio::null()).output();
    asked.is_ok_and(|output| output.status.success())
}

/// The library that reads MPI's headers at build time, where its loader looks for it.
fn has_libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let below = |folder: &str, inside: &str| -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join(inside)).collect()
    };
    let mut folders: Vec<std::path::PathBuf> = below("/usr/lib", "lib");
    folders.extend(below("/usr/lib", ""));
    folders.extend(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(Into::into));
    folders.iter().any(|folder| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let is_clang = |name: String| {
            name == "libclang.so"
                || name.starts_with("libclang.so.")
                || name.starts_with("libclang-")
                    && !name.starts_with("libclang-cpp")
                    && name.contains(".so")
        };
        entries.filter_map(|entry| entry.file_name().into_string().ok()).any(is_clang)
    })
}

fn nextest(filter: &str) -> [&str; 6] {
    ["nextest", "run", "--workspace", "--no-tests=pass", "-E", filter]
}

/// Whether a cargo subcommand is there.
fn has(subcommand: &str) -> bool {
    let quiet =
        |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet(Command::new("cargo").args([subcommand, "--version"]))
        .is_ok_and(|status| status.success())
}

/// Installs a missing component where rustup manages the toolchain; elsewhere its stage is skipped and said so.
fn ensure_component(subcommand: &str) {
    let component = if subcommand == "fmt" { "rustfmt" } else { subcommand };
    if !has(subcommand) {
        println!("installing {component}");
        let _ = Command::new("rustup").args(["component", "add", component]).status();
    }
}

/// A compiler for the project's own crates that sets a `cfg`. Those of others need not be built again.
pub(crate) fn compiler_with(root: &Path, cfg: &str) -> Result<PathBuf, String> {
    let folder = root.join("target").join(cfg);
    let path = folder.join("rustc.sh");
    let failed = |why: std::io::Error| format!("{}: {why}", path.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    std::fs::write(&path, format!("#!/bin/sh\nexec \"$@\" --cfg {cfg}\n")).map_err(failed)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    Ok(path)
}
