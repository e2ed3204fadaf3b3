//! What the wire does: loss and reordering by the kernel's own packet filter, and what somebody who listens sees.

use super::adverts::exchange;
use super::programs::fetch;
use super::{Scene, assert_iwarp, server};
use shunt_tests::apps::{LONG, have};
use shunt_tests::netns::{DEVICE, Host};
use shunt_tests::run::Job;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Drops packets on both hosts, by this chance in a thousand.
pub(super) fn lose(scene: &Scene, per_mille: u32) {
    let chance = per_mille.to_string();
    for host in [Host::One, Host::Two] {
        let nft = |words: &[&str]| scene.hosts.run(host, "nft", words);
        nft(&["add", "table", "inet", "loss"]);
        let hook = "{ type filter hook input priority 0 ; }";
        nft(&["add", "chain", "inet", "loss", "in", hook]);
        nft(&[
            "add", "rule", "inet", "loss", "in", "meta", "l4proto", "tcp", "numgen", "random",
            "mod", "1000", "<", &chance, "drop",
        ]);
    }
}

#[test]
fn loss_changes_nothing_but_speed() {
    if !have(&["nginx", "curl", "nft"]) {
        return;
    }
    for crc in ["on", "off"] {
        let Some(mut scene) = Scene::new(crc) else {
            return;
        };
        lose(&scene, 20);
        let (there, came) = fetch(&mut scene, 4 << 20);
        assert_eq!(there, came);
    }
}

#[test]
fn reordering_changes_nothing_but_speed() {
    if !have(&["nginx", "curl", "tc"]) {
        return;
    }
    let Some(mut scene) = Scene::new("on") else {
        return;
    };
    let words = [
        "qdisc", "add", "dev", DEVICE, "root", "netem", "delay", "1ms", "reorder", "75%", "50%",
    ];
    if !can_reorder(&scene, &words) {
        println!("SKIPPED, this kernel has no netem");
        return;
    }
    let (there, came) = fetch(&mut scene, 2 << 20);
    assert_eq!(there, came);
}

fn can_reorder(scene: &Scene, words: &[&str]) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        scene.hosts.run(Host::One, "tc", words);
        scene.hosts.run(Host::Two, "tc", words);
    }))
    .is_ok()
}

/// Listens on host one from here on.
fn listen(scene: &mut Scene) -> (Job, PathBuf) {
    let capture = scene.stage.folder.path("capture");
    let file = capture.display().to_string();
    let start = scene.stage.plain("tshark");
    let start = start.args(["-q", "-i", DEVICE, "-B", "16", "-f", "tcp", "-w", &file]);
    let listener = scene.hosts.launch(Host::One, start).start();
    let begun =
        shunt_tests::sys::wait::eventually(|| capture.metadata().is_ok_and(|m| m.len() > 0));
    assert!(begun, "tshark does not begin");
    std::thread::sleep(Duration::from_millis(500)); // (it writes its file's header before it listens)
    (listener, capture)
}

/// What was heard, a line a packet with FPDUs: sums, what is malformed, opcodes. Nothing of it may be bad.
fn dissect(scene: &mut Scene, listener: Job, capture: &Path) -> Vec<String> {
    std::thread::sleep(Duration::from_millis(500));
    listener.stop(libc::SIGINT);
    let file = capture.display().to_string();
    let fields = [
        "iwarp_mpa.fpdu",
        "iwarp_mpa.crc",
        "_ws.malformed",
        "_ws.expert.message",
        "iwarp_rdma.opcode",
    ];
    let words = fields.iter().flat_map(|field| ["-e", field]);
    let start = scene.stage.plain("tshark").args(["-r", &file]);
    // (what the kernel has sent again, as it may on a busy machine, is in its place by sequence number)
    let start = start.args(["-o", "tcp.reassemble_out_of_order:TRUE"]);
    let start = start.args(["-T", "fields"]).args(words);
    let read = start.start().finish(LONG);
    read.expect_ok("tshark -r");
    for bad in ["Malformed", "malformed", "Bad CRC", "bad CRC"] {
        let line = read.stdout.lines().find(|l| l.contains(bad));
        assert!(line.is_none(), "{line:?}");
    }
    let frames = read.stdout.lines().filter(|l| !l.starts_with('\t'));
    frames.map(str::to_owned).collect()
}

/// A dissector that nobody here wrote reads every frame of a connection, and finds none malformed.
#[test]
fn tshark_reads_what_goes_over_the_wire() {
    if !have(&["tshark", "redis-server", "redis-cli"]) {
        return;
    }
    let Some(mut scene) = Scene::new("on") else {
        return;
    };
    let (listener, capture) = listen(&mut scene);
    let (port, to) = ("7101", server());
    let words = [
        "--port",
        port,
        "--bind",
        &to,
        "--save",
        "",
        "--protected-mode",
        "no",
    ];
    let start = scene.launch("redis-server").args(words);
    let job = scene.serve(start, 7101);
    let words = [
        "-h", &to, "-p", port, "-c", "3", "-n", "300", "-d", "20000", "-t", "set,get", "-q",
    ];
    let start = scene.launch("redis-benchmark").args(words);
    let bench = scene.client(start, "redis-benchmark");
    assert_iwarp("redis-benchmark", &bench.report, 3, 6_000_000);
    job.stop(libc::SIGTERM);
    let frames = dissect(&mut scene, listener, &capture).len();
    // (how many octets go in one is the kernel's choice)
    assert!(frames > 60, "only {frames} packets with FPDUs were seen");
}

/// It reads adverts, Reads and their answers, too.
#[test]
fn tshark_reads_what_is_advertised() {
    if !have(&["tshark", "python3"]) {
        return;
    }
    let Some(mut scene) = Scene::new("on") else {
        return;
    };
    let (listener, capture) = listen(&mut scene);
    exchange(&mut scene, 4);
    let lines = dissect(&mut scene, listener, &capture);
    // (RFC 5040 section 4: 1 is a Read Request, 2 its answer)
    for opcode in ["0x01", "0x02"] {
        let seen = lines.iter().filter(|line| {
            let opcodes = line.rsplit('\t').next().unwrap_or("");
            opcodes.split(',').any(|word| word == opcode)
        });
        assert!(seen.count() > 3, "opcode {opcode}: {:?}", lines.last());
    }
}
