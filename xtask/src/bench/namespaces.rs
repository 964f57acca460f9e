//! Two network namespaces joined by one link of a given rate (`tc tbf`, a token bucket): the nearest thing to two hosts
//! that one machine has. They are removed when dropped, and by a guard process when this program is ended before it can;
//! nothing outside them is touched.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

/// The pair.
pub(super) struct Namespaces {
    id: u32,
    /// Waits for the end of its input, which this program's end brings about in any case, and clears up.
    guard: Option<Child>,
}

/// Whoever still runs in a namespace is one of ours: nobody else knows it.
pub(crate) const GUARD: &str = "trap '' INT TERM HUP; cat; for name in \"$@\"; do \
                     ip netns pids $name | xargs -r kill -KILL; ip netns del $name; done";

impl Namespaces {
    /// Makes them. Needs the right to (root) and `ip` and `tc`.
    pub(super) fn new(bits_per_second: u64) -> Result<Namespaces, String> {
        let mut pair = Namespaces { id: std::process::id(), guard: None };
        let [left, right] = [Side::Left, Side::Right].map(|side| pair.name(side));
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard", &left, &right]).stdin(Stdio::piped());
        guard.stdout(Stdio::null()).stderr(Stdio::null());
        pair.guard = Some(guard.spawn().map_err(|why| format!("sh: {why}"))?);
        let [inner, outer] = [Side::Left, Side::Right].map(|side| pair.interface(side));
        call(&format!("ip netns add {left}"))?;
        call(&format!("ip netns add {right}"))?;
        call(&format!(
            "ip link add {inner} netns {left} type veth peer name {outer} netns {right}"
        ))?;
        for side in [Side::Left, Side::Right] {
            let (name, interface) = (pair.name(side), pair.interface(side));
            call(&format!("ip -n {name} addr add {}/24 dev {interface}", Self::address(side)))?;
            call(&format!("ip -n {name} link set lo up"))?;
            call(&format!("ip -n {name} link set {interface} up"))?;
            let bucket = format!("tbf rate {bits_per_second}bit burst 32kb latency 50ms");
            call(&format!("ip netns exec {name} tc qdisc add dev {interface} root {bucket}"))?;
        }
        Ok(pair)
    }

    /// The address of a side, in both.
    pub(super) fn address(side: Side) -> &'static str {
        match side {
            Side::Left => "10.99.0.1",
            Side::Right => "10.99.0.2",
        }
    }

    /// The end of the link that lies in a side. Names of interfaces are short.
    pub(super) fn interface(&self, side: Side) -> String {
        format!("{}{}", if side == Side::Left { "bl" } else { "br" }, self.id)
    }

    /// A program inside a side.
    pub(super) fn command(&self, side: Side, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(side)]).arg(program);
        command
    }

    /// Bytes that have left each side since the link was made, headers of packets included.
    pub(super) fn bytes(&self) -> Result<[u64; 2], String> {
        let count = |side: Side| {
            let path = format!("/sys/class/net/{}/statistics/tx_bytes", self.interface(side));
            let output = self.command(side, "cat").arg(path).output();
            let text = output.map_err(|why| why.to_string())?.stdout;
            let text = String::from_utf8_lossy(&text).trim().to_string();
            text.parse::<u64>().map_err(|_| format!("no count of bytes: '{text}'"))
        };
        Ok([count(Side::Left)?, count(Side::Right)?])
    }

    fn name(&self, side: Side) -> String {
        format!("starlings-{}-{}", if side == Side::Left { "left" } else { "right" }, self.id)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // A link goes with its namespaces.
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

/// Runs a line of words as a program.
pub(crate) fn call(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a line has a first word");
    let output =
        Command::new(program).args(words).output().map_err(|why| format!("{program}: {why}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
