//! The measuring programs: iperf3, iperf 2, sockperf, netperf.

use shunt_tests::apps::{LONG, Stage, free_port, have, number_after, twice};

/// What a stream carries.
const SIZE: u64 = 64 << 20;

/// What iperf3 counts as received leaves out what lies in buffers when the client ends: 10 MiB a stream, where the kernel has them.
fn iperf3(stage: &mut Stage, extra: &[&str], streams: u64) {
    let port = free_port();
    let text = port.to_string();
    let start = stage.launch("iperf3").args(["-s", "-1", "-p", &text]);
    let server = stage.serve(start, port);
    let all = SIZE * streams;
    let amount = all.to_string();
    let words = ["-c", "127.0.0.1", "-p", &text, "-J", "-n", &amount];
    let start = stage.launch("iperf3").args(words).args(extra);
    let client = stage.client(start, "iperf3");
    let received = client.stdout.rsplit("\"sum_received\"").next().unwrap();
    let moved = number_after(received, "\"bytes\"") as u64;
    let by_kernel = !stage.loaded() || shunt_tests::run::transport().is_some();
    let least = if streams > 1 || by_kernel {
        all / 2
    } else {
        all * 9 / 10
    };
    assert!(moved >= least, "only {moved} bytes");
    let end = server.finish(LONG);
    end.expect_ok("iperf3 -s");
    stage.assert_shm("iperf3 client", &client.report, streams, all / 2);
    stage.assert_shm("iperf3 server", &end.report, streams, all / 2);
}

fn iperf3_scene(stage: &mut Stage, extra: &[&str], streams: u64) -> String {
    iperf3(stage, extra, streams);
    String::new()
}

#[test]
fn iperf3_forward() {
    if have(&["iperf3"]) {
        twice(|stage| iperf3_scene(stage, &[], 1));
    }
}

#[test]
fn iperf3_reverse() {
    if have(&["iperf3"]) {
        twice(|stage| iperf3_scene(stage, &["-R"], 1));
    }
}

#[test]
fn iperf3_four_streams() {
    if have(&["iperf3"]) {
        twice(|stage| iperf3_scene(stage, &["-P", "4"], 4));
    }
}

#[test]
fn iperf3_sendfile() {
    if have(&["iperf3"]) {
        twice(|stage| iperf3_scene(stage, &["-Z"], 1));
    }
}

#[test]
fn iperf3_bidirectional() {
    if have(&["iperf3"]) {
        twice(|stage| {
            let port = free_port();
            let text = port.to_string();
            let start = stage.launch("iperf3").args(["-s", "-1", "-p", &text]);
            let server = stage.serve(start, port);
            let words = ["-c", "127.0.0.1", "-p", &text, "--bidir", "-t", "1"];
            let start = stage.launch("iperf3").args(words);
            let client = stage.client(start, "iperf3 --bidir");
            server.finish(LONG).expect_ok("iperf3 -s");
            stage.assert_shm("iperf3 --bidir", &client.report, 2, 1 << 20);
            String::new()
        });
    }
}

#[test]
fn iperf2() {
    if have(&["iperf"]) {
        twice(|stage| {
            let port = free_port();
            let text = port.to_string();
            let start = stage.launch("iperf").args(["-s", "-P", "1", "-p", &text]);
            let server = stage.serve(start, port);
            let words = ["-c", "127.0.0.1", "-p", &text, "-n", "64M", "-f", "m"];
            let start = stage.launch("iperf").args(words);
            let client = stage.client(start, "iperf");
            assert!(client.stdout.contains("bits/sec"), "{}", client.stdout);
            stage.assert_shm("iperf client", &client.report, 1, SIZE * 8 / 10);
            let end = server.stop(libc::SIGINT);
            assert!(end.hang.is_none(), "{:?}", end.hang);
            // (it asks for times, and reads without room for them: neither is a reason to go back)
            stage.assert_shm("iperf server", &end.report, 1, SIZE * 8 / 10);
            String::new()
        });
    }
}

/// A fixed rate: sockperf sizes its table of messages for what it believes to be possible, and
/// stops with an error when a round trip takes less than that.
fn sockperf(stage: &mut Stage, what: &str) -> String {
    let port = free_port();
    let text = port.to_string();
    let start = stage
        .launch("sockperf")
        .args(["sr", "--tcp", "-i", "127.0.0.1", "-p", &text]);
    let server = stage.serve(start, port);
    let words = [
        what,
        "--tcp",
        "-i",
        "127.0.0.1",
        "-p",
        &text,
        "-t",
        "2",
        "-m",
        "64",
    ];
    let mut start = stage.launch("sockperf").args(words);
    if what == "ping-pong" {
        // sockperf numbers its messages for 600,000 a second at most and ends with an error beyond.
        start = start.args(["--mps", "300000"]);
    }
    let client = stage.client(start, "sockperf");
    assert!(!client.stdout.contains("ERROR"), "{}", client.stdout);
    if what == "ping-pong" {
        for key in [
            "dropped messages",
            "duplicated messages",
            "out-of-order messages",
        ] {
            assert_eq!(
                number_after(&client.stdout, &format!("# {key}")),
                0.0,
                "{}",
                client.stdout
            );
        }
    }
    stage.assert_shm("sockperf client", &client.report, 1, 64 * 1000);
    let end = server.stop(libc::SIGINT);
    assert!(end.hang.is_none(), "{:?}", end.hang);
    stage.assert_shm("sockperf server", &end.report, 1, 64 * 1000);
    String::new()
}

#[test]
fn sockperf_ping_pong() {
    if have(&["sockperf"]) {
        twice(|stage| sockperf(stage, "ping-pong"));
    }
}

#[test]
fn sockperf_throughput() {
    if have(&["sockperf"]) {
        twice(|stage| sockperf(stage, "throughput"));
    }
}

fn netperf(stage: &mut Stage, test: &str, connections: u64) -> String {
    let port = free_port();
    let text = port.to_string();
    let start = stage
        .launch("netserver")
        .args(["-D", "-4", "-L", "127.0.0.1", "-p", &text]);
    let server = stage.serve(start, port);
    let words = [
        "-H",
        "127.0.0.1",
        "-4",
        "-p",
        &text,
        "-t",
        test,
        "-l",
        "2",
        "-P",
        "0",
    ];
    let start = stage.launch("netperf").args(words);
    let client = stage.client(start, "netperf");
    let result = client
        .stdout
        .split_whitespace()
        .filter_map(|w| w.parse::<f64>().ok())
        .fold(0.0, f64::max);
    assert!(result > 1.0, "{}", client.stdout);
    stage.assert_shm("netperf", &client.report, connections, 1000);
    let end = server.stop(libc::SIGTERM);
    assert!(end.hang.is_none(), "{:?}", end.hang);
    String::new()
}

#[test]
fn netperf_request_response() {
    if have(&["netperf", "netserver"]) {
        twice(|stage| netperf(stage, "TCP_RR", 1));
    }
}

#[test]
fn netperf_stream() {
    if have(&["netperf", "netserver"]) {
        twice(|stage| netperf(stage, "TCP_STREAM", 1));
    }
}

#[test]
fn netperf_reverse_stream() {
    if have(&["netperf", "netserver"]) {
        twice(|stage| netperf(stage, "TCP_MAERTS", 1));
    }
}

/// A connection for each transaction: the path is the library's choice, correctness is not.
/// netperf counts its own local ports upwards and stops at one that is still in TIME_WAIT, with or
/// without the library, so it may try again from elsewhere.
#[test]
fn netperf_connect_request_response() {
    if have(&["netperf", "netserver"]) {
        twice(|stage| {
            let port = free_port();
            let text = port.to_string();
            let start =
                stage
                    .launch("netserver")
                    .args(["-D", "-4", "-L", "127.0.0.1", "-p", &text]);
            let server = stage.serve(start, port);
            let words = [
                "-H",
                "127.0.0.1",
                "-4",
                "-p",
                &text,
                "-t",
                "TCP_CRR",
                "-l",
                "-2000",
                "-P",
                "0",
            ];
            let mut tries = 0;
            loop {
                let client = stage.launch("netperf").args(words).start().finish(LONG);
                tries += 1;
                if tries == 5 || !client.stderr.contains("Address already in use") {
                    client.expect_ok("netperf");
                    stage.assert_explained("netperf", &client.report);
                    break;
                }
            }
            let end = server.stop(libc::SIGTERM);
            assert!(end.hang.is_none(), "{:?}", end.hang);
            String::new()
        });
    }
}
