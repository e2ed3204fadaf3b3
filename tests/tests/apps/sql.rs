//! postgres with psql and pgbench: a process for each connection.
//!
//! The postmaster accepts and a child talks, so the path is the library's choice for now; every
//! connection on kernel TCP must say why.

use shunt_tests::apps::{LONG, Stage, find, free_port, have, twice};
use shunt_tests::run::{Job, Launch};
use shunt_tests::sys::wait;

fn root() -> bool {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// postgres refuses to run as root: as somebody else then.
fn as_somebody(start: Launch, program: &str, words: &[&str]) -> Launch {
    let path = find(program).unwrap();
    if root() {
        start.args(["-u", "nobody", "--"]).args([path]).args(words)
    } else {
        start.args(["-"]).args([path]).args(words)
    }
}

fn runner() -> &'static str {
    if root() { "runuser" } else { "env" }
}

fn postgres(stage: &mut Stage, port: u16) -> Job {
    let data = stage.folder.path("data");
    std::fs::create_dir_all(&data).unwrap();
    if root() {
        let chown = stage.plain("chown").args(["nobody"]).args([&data]);
        chown.start().finish(LONG).expect_ok("chown");
    }
    let words = [
        "-D",
        "data",
        "-A",
        "trust",
        "-U",
        "tester",
        "--no-sync",
        "-E",
        "UTF8",
    ];
    let init = as_somebody(stage.plain(runner()), "initdb", &words);
    init.start().finish(LONG).expect_ok("initdb");
    let text = port.to_string();
    let words = [
        "-D",
        "data",
        "-p",
        &text,
        "-k",
        "",
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        "fsync=off",
    ];
    let start = as_somebody(stage.launch(runner()), "postgres", &words);
    let server = stage.serve(start, port);
    // It listens before it takes anybody; the eighth line of its file says when it does.
    let file = stage.folder.path("data/postmaster.pid");
    let is_ready = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines()
            .nth(7)
            .is_some_and(|line| line.trim() == "ready")
    };
    assert!(wait::eventually(is_ready), "the server is not ready");
    server
}

fn connect(port: u16) -> Vec<String> {
    ["-h", "127.0.0.1", "-U", "tester", "-p", &port.to_string()]
        .map(str::to_string)
        .to_vec()
}

#[test]
fn psql_and_pgbench() {
    if !have(&["postgres", "initdb", "psql", "pgbench"]) {
        return;
    }
    twice(|stage| {
        let port = free_port();
        let server = postgres(stage, port);
        let script = "create table t(a int, b text);\n\
            insert into t select g, repeat('word ', g % 50) from generate_series(1, 20000) g;\n\
            select count(*), sum(length(b)), md5(string_agg(b, '' order by a)) from t;\n\
            copy t to stdout;\n\
            select pg_sleep(0.1);\n\
            do $$ begin raise exception 'on purpose'; end $$;\n\
            select 1/0;\n";
        let input = stage.file("script", script.as_bytes());
        let start = stage
            .launch("psql")
            .args(["-X", "-A", "-t"])
            .args(connect(port));
        let start = start.args(["postgres"]).input(&input);
        let psql = stage.client(start, "psql");
        stage.assert_explained("psql", &psql.report);
        let start = stage
            .launch("pgbench")
            .args(["-i", "-q", "-s", "1"])
            .args(connect(port));
        stage.client(start.args(["postgres"]), "pgbench -i");
        let start = stage
            .launch("pgbench")
            .args(["-c", "4", "-j", "2", "-t", "200"])
            .args(connect(port));
        let bench = stage.client(start.args(["postgres"]), "pgbench");
        assert!(bench.stdout.contains("800/800"), "{}", bench.stdout);
        stage.assert_explained("pgbench", &bench.report);
        let end = stop(stage, server);
        stage.assert_explained("postgres", &end);
        psql.stdout + &psql.stderr.replace(&port.to_string(), "PORT")
    });
}

/// The job may be a runner with the postmaster as its child: the pid file knows.
fn stop(stage: &Stage, server: Job) -> shunt_tests::report::Report {
    let file = std::fs::read_to_string(stage.folder.path("data/postmaster.pid")).unwrap();
    let pid: i32 = file.lines().next().unwrap().parse().unwrap();
    shunt_tests::sys::proc::kill(pid, libc::SIGINT).ok();
    server.finish(LONG).report
}
