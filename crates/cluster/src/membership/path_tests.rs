//! How long members may be silent, by where they are.

use super::tests::{id, surviving};
use super::*;

#[test]
fn a_member_on_another_host_is_given_the_time_that_a_path_takes_to_be_found_again() {
    let mut bench = surviving(2);
    for (member, address) in [(20, "10.0.0.7:4000"), (21, "127.0.0.1:4000"), (22, "[::1]:4000")] {
        let (host, address) = ("elsewhere".to_string(), address.to_string());
        bench.on(Event::Joined { member: id(member), host, pid: 1, address });
    }
    bench.out.clear();
    let forgotten = |out: &[Command]| -> Vec<u64> {
        let gone = out.iter().filter_map(|command| match command {
            Command::Forget { member } => Some(member.0),
            _ => None,
        });
        gone.collect()
    };
    // Its link was down for 0.3 s, and its first question for an address got lost.
    bench.pass(1_400, &[10, 11]);
    assert_eq!(forgotten(&bench.out), [21, 22]);
    bench.pass(200, &[10, 11]);
    assert_eq!(forgotten(&bench.out), [21, 22, 20]);
}
