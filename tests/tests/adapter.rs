//! The cases for RDMA adapters over the stand-in: two processes of this machine.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

const PEER: &str = env!("CARGO_BIN_EXE_adapter_peer");

/// Does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn peer(stand_in: &str) -> Command {
    let mut command = Command::new(PEER);
    command.env("SHUNT_STANDIN_ADAPTER", stand_in);
    command
}

#[test]
fn the_stand_in_does_what_an_adapter_has_to() {
    all_pass_by("1", "StandIn");
}

#[test]
fn so_it_does_at_ports_of_infiniband() {
    all_pass_by("1@", "Infiniband");
}

fn all_pass_by(stand_in: &str, kind: &str) {
    let served = peer(stand_in)
        .args(["serve", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn();
    let mut served = Process(served.unwrap());
    let mut said = BufReader::new(served.0.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line
        .trim_end()
        .trim_start_matches("Ok(")
        .trim_end_matches(')');
    let asked = peer(stand_in).args(["ask", address]).output().unwrap();
    let text = String::from_utf8_lossy(&asked.stdout);
    assert!(asked.status.success(), "{text}");
    let at = format!("the first is at Pair(Pair {{ kind: {kind}");
    assert!(text.contains(&at), "{text}");
    assert!(
        text.contains("test result: ok. 21 passed; 0 failed"),
        "{text}"
    );
    assert!(served.0.wait().unwrap().success());
}
