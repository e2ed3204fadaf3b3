//! iperf3, sockperf, redis, nginx, curl and wrk.

use super::{Scene, assert_iwarp, server};
use shunt_tests::apps::{LONG, digest, have, number_after};
use shunt_tests::run::Job;
use std::path::PathBuf;

const PORT: u16 = 7100;
const MIB: u64 = 1 << 20;

fn iperf3(scene: &mut Scene, extra: &[&str], streams: usize, size: &str, least: u64) {
    let text = PORT.to_string();
    let start = scene.launch("iperf3").args(["-s", "-1", "-p", &text]);
    let job = scene.serve(start, PORT);
    let to = server();
    let words = ["-c", &to, "-p", &text, "-J", "-n", size];
    let start = scene.launch("iperf3").args(words).args(extra);
    let client = scene.client(start, "iperf3");
    let received = client.stdout.rsplit("\"sum_received\"").next().unwrap();
    let moved = number_after(received, "\"bytes\"") as u64;
    assert!(moved >= least, "only {moved} bytes");
    let end = job.finish(LONG);
    end.expect_ok("iperf3 -s");
    assert_iwarp("iperf3", &client.report, streams + 1, least);
    assert_iwarp("iperf3 -s", &end.report, streams + 1, least);
}

#[test]
fn iperf3_every_way() {
    if !have(&["iperf3"]) {
        return;
    }
    for crc in ["on", "off"] {
        for (extra, streams) in [(&[][..], 1), (&["-R"], 1), (&["-P", "4"], 4), (&["-Z"], 1)] {
            let Some(mut scene) = Scene::new(crc) else {
                return;
            };
            // (what lies in buffers when the client ends is not counted: 10 MiB a stream)
            let size = 64 * MIB * streams as u64;
            iperf3(&mut scene, extra, streams, &size.to_string(), size / 4);
        }
    }
}

#[test]
fn sockperf_ping_pong() {
    if !have(&["sockperf"]) {
        return;
    }
    let Some(mut scene) = Scene::new("on") else {
        return;
    };
    let (port, to) = (PORT.to_string(), server());
    let words = ["server", "--tcp", "-i", &to, "-p", &port];
    let start = scene.launch("sockperf").args(words);
    let job = scene.serve(start, PORT);
    let words = ["ping-pong", "--tcp", "-i", &to, "-p", &port, "-t", "1"];
    let start = scene.launch("sockperf").args(words);
    let client = scene.client(start, "sockperf");
    assert!(
        client.stdout.contains("Valid Duration"),
        "{}",
        client.stdout
    );
    assert_iwarp("sockperf", &client.report, 1, 1000);
    job.stop(libc::SIGINT);
}

#[test]
fn redis_with_many_clients() {
    if !have(&["redis-server", "redis-cli", "redis-benchmark"]) {
        return;
    }
    let Some(mut scene) = Scene::new("on") else {
        return;
    };
    let (port, to) = (PORT.to_string(), server());
    let words = [
        "--port",
        &port,
        "--bind",
        &to,
        "--save",
        "",
        "--protected-mode",
        "no",
    ];
    let start = scene.launch("redis-server").args(words);
    let job = scene.serve(start, PORT);
    let words = [
        "-h", &to, "-p", &port, "-c", "20", "-n", "4000", "-d", "3000", "-t", "set,get", "-q",
    ];
    let start = scene.launch("redis-benchmark").args(words);
    let bench = scene.client(start, "redis-benchmark");
    assert_iwarp("redis-benchmark", &bench.report, 20, 20 * MIB);
    let text = "value ".repeat(50_000);
    let start =
        scene
            .launch("redis-cli")
            .args(["-h", &to, "-p", &port, "set", "key", &text[..100_000]]);
    let set = scene.client(start, "redis-cli set");
    assert!(set.stdout.starts_with("OK"), "{}", set.stdout);
    let start = scene
        .launch("redis-cli")
        .args(["-h", &to, "-p", &port, "get", "key"]);
    let get = scene.client(start, "redis-cli get");
    assert_eq!(get.stdout.trim_end(), text[..100_000].trim_end());
    assert_iwarp("redis-cli", &get.report, 1, 100_000);
    job.stop(libc::SIGTERM);
}

#[test]
fn nginx_and_curl() {
    if !have(&["nginx", "curl"]) {
        return;
    }
    let Some(mut scene) = Scene::new("off") else {
        return;
    };
    let digests = fetch(&mut scene, 24 * MIB as usize);
    assert_eq!(digests.0, digests.1);
}

/// Connections that come by the dozen, each of whose answers does not fit at once.
#[test]
fn nginx_and_wrk() {
    if !have(&["nginx", "wrk"]) {
        return;
    }
    let Some(mut scene) = Scene::new("on") else {
        return;
    };
    let (job, _) = nginx(&mut scene, 64 * 1024);
    for _ in 0..4 {
        let url = format!("http://{}:{PORT}/file", server());
        let words = ["-t", "1", "-c", "24", "-d", "1s", &url];
        let start = scene.launch("wrk").args(words);
        let client = scene.client(start, "wrk");
        let text = &client.stdout;
        assert!(!text.contains("Socket errors"), "{text}");
        assert_iwarp("wrk", &client.report, 24, 24 * 64 * 1024);
    }
    job.stop(libc::SIGTERM);
}

/// nginx with a file of this size, and where that lies.
fn nginx(scene: &mut Scene, size: usize) -> (Job, PathBuf) {
    let content: Vec<u8> = (0..size)
        .map(|i| (i ^ (i >> 7) ^ (i >> 15)) as u8)
        .collect();
    let file = scene.stage.file("www/file", &content);
    scene.stage.file("www/logs/empty", b"");
    let folder = scene.stage.folder.path("");
    let folder = folder.display();
    let config = format!(
        "daemon off; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/error.log;
         events {{ worker_connections 64; }}
         http {{ access_log off; sendfile on; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
           fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
           server {{ listen {}:{PORT}; root {folder}/www; }} }}",
        server()
    );
    let config = scene.stage.file("nginx.conf", config.as_bytes());
    let config = config.display().to_string();
    let start = scene.launch("nginx").args(["-c", &config]);
    let job = scene.serve(start, PORT);
    (job, file)
}

/// Fetches a file of this size from nginx by curl: the digests of what was there and of what came.
pub(super) fn fetch(scene: &mut Scene, size: usize) -> (String, String) {
    let (job, file) = nginx(scene, size);
    let got = scene.stage.folder.path("got");
    let url = format!("http://{}:{PORT}/file", server());
    let to = got.display().to_string();
    let start = scene
        .launch("curl")
        .args(["-sS", "--fail", "-o", &to, &url]);
    let client = scene.client(start, "curl");
    assert_iwarp("curl", &client.report, 1, size as u64);
    job.stop(libc::SIGTERM);
    (digest(&file), digest(&got))
}
