//! nginx with curl and wrk, and Python's http.server.

use shunt_tests::apps::{Stage, digest, free_port, have, number_after, twice};
use shunt_tests::run::Job;
use shunt_tests::side::Random;

fn nginx(stage: &mut Stage, port: u16) -> Job {
    stage.file("www/small", &[b'a'; 1024]);
    stage.file("www/large", &Random::new(3).bytes(20 << 20));
    let folder = stage.folder.path("");
    let folder = folder.display();
    let user = if nix_root() {
        "user nobody nogroup;"
    } else {
        ""
    };
    let config = format!(
        "{user} daemon off; worker_processes 4; pid {folder}/pid; error_log stderr warn;
        events {{ worker_connections 256; }}
        http {{
            access_log off; sendfile on; keepalive_requests 100000000;
            client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2;
            fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
            server {{ listen 127.0.0.1:{port}; root {folder}/www; }}
        }}"
    );
    let file = stage.file("nginx.conf", config.as_bytes());
    let start = stage
        .launch("nginx")
        .args(["-e", "stderr", "-c"])
        .args([file]);
    stage.serve(start, port)
}

fn nix_root() -> bool {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn nginx_curl() {
    if have(&["nginx", "curl"]) {
        twice(|stage| {
            let port = free_port();
            let server = nginx(stage, port);
            let many = format!("http://127.0.0.1:{port}/small?[1-50]");
            let start = stage.launch("curl").args(["-sS", "--fail", &many]);
            let client = stage.client(start, "curl, many small");
            assert_eq!(client.stdout.len(), 50 * 1024);
            stage.assert_shm("curl, many small", &client.report, 1, 40 * 1024);
            let large = format!("http://127.0.0.1:{port}/large");
            let start = stage
                .launch("curl")
                .args(["-sS", "--fail", "-o", "out", &large, "-o", "out2", &large]);
            let client = stage.client(start, "curl, large");
            stage.assert_shm("curl, large", &client.report, 1, 20 << 20);
            let got = format!(
                "{} {}",
                digest(&stage.folder.path("out")),
                digest(&stage.folder.path("out2"))
            );
            let missing = format!("http://127.0.0.1:{port}/none");
            let start = stage.launch("curl").args([
                "-sS",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                &missing,
            ]);
            let client = stage.client(start, "curl, missing");
            let end = server.stop(libc::SIGQUIT);
            end.expect_ok("nginx");
            stage.assert_shm("nginx", &end.report, 2, 20 << 20);
            got + &client.stdout
        });
    }
}

#[test]
fn nginx_wrk() {
    if have(&["nginx", "wrk"]) {
        twice(|stage| {
            let port = free_port();
            let server = nginx(stage, port);
            let url = format!("http://127.0.0.1:{port}/small");
            let start = stage.launch("wrk").args(["-t1", "-c16", "-d2s", &url]);
            let client = stage.client(start, "wrk");
            assert!(
                number_after(&client.stdout, "Requests/sec:") > 100.0,
                "{}",
                client.stdout
            );
            for bad in ["Socket errors", "Non-2xx"] {
                assert!(!client.stdout.contains(bad), "{}", client.stdout);
            }
            stage.assert_shm("wrk", &client.report, 16, 1 << 20);
            let end = server.stop(libc::SIGQUIT);
            end.expect_ok("nginx");
            stage.assert_shm("nginx", &end.report, 16, 1 << 20);
            String::new()
        });
    }
}

/// One end under the library, the other plain: everything works and stays on kernel TCP.
#[test]
fn nginx_with_plain_clients() {
    if have(&["nginx", "curl"]) {
        let mut stage = Stage::new(true);
        let port = free_port();
        let server = nginx(&mut stage, port);
        let url = format!("http://127.0.0.1:{port}/small?[1-50]");
        let start = stage.plain("curl").args(["-sS", "--fail", &url]);
        let client = stage.client(start, "plain curl");
        assert_eq!(client.stdout.len(), 50 * 1024);
        let end = server.stop(libc::SIGQUIT);
        end.report.check_tcp().unwrap();
        assert!(
            end.report.tcp() >= 1,
            "the plain client's connection is not in the report"
        );
    }
}

#[test]
fn python_http_server() {
    if have(&["python3"]) {
        twice(|stage| {
            stage.file("www/large", &Random::new(4).bytes(6 << 20));
            stage.file("www/small", b"small\n");
            let port = free_port();
            let text = port.to_string();
            let words = [
                "-m",
                "http.server",
                &text,
                "--bind",
                "127.0.0.1",
                "-d",
                "www",
                "--protocol",
                "HTTP/1.1",
            ];
            let start = stage.launch("python3").args(words);
            let server = stage.serve(start, port);
            let script = stage.file("client.py", CLIENT.as_bytes());
            let start = stage
                .launch("python3")
                .args([script.as_os_str()])
                .env("PORT", &text);
            let client = stage.client(start, "http client");
            stage.assert_shm("http client", &client.report, 1, 6 << 20);
            let end = server.stop(libc::SIGINT);
            assert!(end.hang.is_none(), "{:?}", end.hang);
            stage.assert_shm("http.server", &end.report, 1, 6 << 20);
            client.stdout
        });
    }
}

const CLIENT: &str = r#"
import hashlib, http.client, os, urllib.request
port = int(os.environ["PORT"])
c = http.client.HTTPConnection("127.0.0.1", port)
for i in range(30):
    c.request("GET", "/small")
    print(c.getresponse().read())
c.request("GET", "/large")
print(hashlib.sha256(c.getresponse().read()).hexdigest())
c.close()
print(hashlib.sha256(urllib.request.urlopen(f"http://127.0.0.1:{port}/large").read()).hexdigest())
"#;
