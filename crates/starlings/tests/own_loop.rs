//! The example with a caller's own loop runs as three real processes and all reach the same line.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::process::Command;

#[test]
fn three_processes_sum_their_gradients() {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/own_loop");
    let output = Command::new(&example).output().unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo test` builds it with the tests", example.display())
    });
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> =
        (0..3).map(|rank| format!("rank {rank} of 3: y = 1.999 x + 1.000")).collect();
    assert_eq!(lines, expected);
}
