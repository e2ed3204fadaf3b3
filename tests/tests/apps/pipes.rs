//! socat and nc: bytes in, bytes out, half-close, and a child for each connection.

use shunt_tests::apps::{LONG, digest, free_port, have, twice};
use shunt_tests::side::Random;

const SIZE: u64 = 16 << 20;

#[test]
fn socat_one_way() {
    if have(&["socat"]) {
        twice(|stage| {
            stage.file("in", &Random::new(1).bytes(SIZE as usize));
            let port = free_port();
            let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr");
            let start = stage.launch("socat").args(["-u", &listen, "CREATE:out"]);
            let server = stage.serve(start, port);
            let start =
                stage
                    .launch("socat")
                    .args(["-u", "OPEN:in", &format!("TCP:127.0.0.1:{port}")]);
            let client = stage.client(start, "socat");
            let end = server.finish(LONG);
            end.expect_ok("socat server");
            stage.assert_shm("socat client", &client.report, 1, SIZE * 9 / 10);
            stage.assert_shm("socat server", &end.report, 1, SIZE * 9 / 10);
            digest(&stage.folder.path("out"))
        });
    }
}

/// The other direction: the server sends, the client only receives.
#[test]
fn socat_server_sends() {
    if have(&["socat"]) {
        twice(|stage| {
            stage.file("in", &Random::new(2).bytes(SIZE as usize));
            let port = free_port();
            let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr");
            let start = stage.launch("socat").args(["-u", "OPEN:in", &listen]);
            let server = stage.serve(start, port);
            let to = format!("TCP:127.0.0.1:{port}");
            let start = stage.launch("socat").args(["-u", &to, "CREATE:out"]);
            let client = stage.client(start, "socat");
            server.finish(LONG).expect_ok("socat server");
            stage.assert_shm("socat client", &client.report, 1, SIZE * 9 / 10);
            digest(&stage.folder.path("out"))
        });
    }
}

/// `EXEC:cat` in a child: the stream is shared with another program, any path is right.
#[test]
fn socat_echo_by_child() {
    if have(&["socat"]) {
        twice(|stage| {
            let input = stage.file("in", &Random::new(3).bytes(1 << 20));
            let port = free_port();
            let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork");
            let start = stage.launch("socat").args([listen.as_str(), "EXEC:cat"]);
            let server = stage.serve(start, port);
            let mut seen = String::new();
            for i in 0..5 {
                let to = format!("TCP:127.0.0.1:{port}");
                let out = format!("out{i}");
                let words = ["-t", "20", "STDIN!!CREATE", &to];
                let words = [words[0], words[1], &format!("{}:{out}", words[2]), words[3]];
                let start = stage.launch("socat").args(words).input(&input);
                let client = stage.client(start, "socat echo");
                stage.assert_explained("socat echo", &client.report);
                seen += &digest(&stage.folder.path(&out));
            }
            let end = server.stop(libc::SIGTERM);
            stage.assert_explained("socat fork server", &end.report);
            seen
        });
    }
}

/// Files both ways through nc, each end closing its half when its file ends.
#[test]
fn nc_both_ways() {
    if have(&["nc"]) {
        twice(|stage| {
            let question = stage.file("question", &Random::new(4).bytes(SIZE as usize));
            let answer = stage.file("answer", &Random::new(5).bytes(SIZE as usize / 2));
            let port = free_port();
            let text = port.to_string();
            let start = stage
                .launch("bash")
                .args(["-c", "exec nc -N -l 127.0.0.1 $PORT > heard"]);
            let start = start.env("PORT", &text).input(&answer);
            let server = stage.serve(start, port);
            let start = stage
                .launch("bash")
                .args(["-c", "exec nc -N 127.0.0.1 $PORT > told"]);
            let start = start.env("PORT", &text).input(&question);
            let client = stage.client(start, "nc");
            let end = server.finish(LONG);
            end.expect_ok("nc -l");
            stage.assert_shm("nc", &client.report, 1, SIZE);
            stage.assert_shm("nc -l", &end.report, 1, SIZE);
            digest(&stage.folder.path("heard")) + &digest(&stage.folder.path("told"))
        });
    }
}

#[test]
fn nc_scan() {
    if have(&["nc"]) {
        twice(|stage| {
            let port = free_port();
            let text = port.to_string();
            let start = stage.launch("nc").args(["-z", "127.0.0.1", &text]);
            let refused = start.start().finish(LONG).ending();
            let start = stage.launch("nc").args(["-k", "-l", "127.0.0.1", &text]);
            let server = stage.serve(start, port);
            let start = stage.launch("nc").args(["-z", "127.0.0.1", &text]);
            let open = start.start().finish(LONG).ending();
            server.stop(libc::SIGTERM);
            format!("{refused} {open}")
        });
    }
}
